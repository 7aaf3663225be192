// oneDNN's batchnorm through its own interface, into preallocated memory and without a graph.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "bench/cases.h"

namespace renorm::bench {

class OneDnn {
 public:
  enum class Format { kPlain, kBlocked };  // kBlocked: channels in blocks of one vector; nchw only

  virtual ~OneDnn() = default;
  virtual void forward() = 0;
  virtual void backward() = 0;  // of the latest forward
  virtual void inference() = 0;
  // Copies in the layout of the case.
  virtual at::Tensor output() const = 0;
  virtual at::Tensor input_gradient() const = 0;
};

// Null if the program was built without oneDNN or this oneDNN has no implementation for the case.
std::unique_ptr<OneDnn> make_onednn(const Case& shape_and_layout, const Data& data, OneDnn::Format format);

// "2.6.3", or "" if the program was built without oneDNN.
std::string onednn_version();

// "nChw16c" or "nChw8c", or "".
std::string onednn_blocked_format();

}  // namespace renorm::bench
