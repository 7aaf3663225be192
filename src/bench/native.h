// LibTorch's own batchnorm, called as LibTorch's layers call it, with and without a following ReLU.
#pragma once

#include <ATen/ATen.h>

#include <tuple>

#include "bench/cases.h"

namespace renorm::bench {

class Native {
 public:
  explicit Native(const Data& data);

  // The averages are not handed in, because our operator does not move them either.
  at::Tensor forward(bool relu) const;
  // dx, dweight, dbias.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(bool relu) const;
  at::Tensor inference(bool relu) const;

 private:
  Data data_;
  at::Tensor relu_output_, saved_mean_, saved_inv_std_;
};

}  // namespace renorm::bench
