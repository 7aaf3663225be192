// Batch Renorm as somebody writes it from tensor operations, differentiated by autograd.
#pragma once

#include <ATen/ATen.h>

#include <tuple>

#include "bench/cases.h"

namespace renorm::bench {

class TensorOps {
 public:
  explicit TensorOps(const Data& data);

  at::Tensor forward() const;
  // dx, dweight, dbias; the graph is that of one forward, kept.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward() const;
  at::Tensor inference() const;

 private:
  Data data_;
  at::Tensor output_;
};

}  // namespace renorm::bench
