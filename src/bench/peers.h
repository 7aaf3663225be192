// The peers of our layer, in LibTorch's own operators.
#pragma once

#include <ATen/ATen.h>

#include <tuple>

#include "bench/cases.h"
#include "models/norm.h"

namespace renorm::bench {

// LibTorch's batchnorm, called as LibTorch's layers call it, and what follows as separate calls.
class Native {
 public:
  explicit Native(const Data& data);

  // The averages are not passed, because our operator does not update them either.
  at::Tensor forward(Ending ending) const;
  // dx, dweight, dbias.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(Ending ending) const;
  at::Tensor inference(Ending ending) const;

 private:
  Data data_;
  at::Tensor relu_output_, added_output_, saved_mean_, saved_inv_std_;
};

// Batch Renorm written in tensor operations and differentiated by autograd.
class TensorOps {
 public:
  explicit TensorOps(const Data& data);

  at::Tensor forward() const;
  // dx, dweight, dbias, from the graph of one forward pass, which is kept.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward() const;
  at::Tensor inference() const;

 private:
  Data data_;
  at::Tensor output_;
};

// The same as a layer of a net, with a separate ReLU. `eps` and `momentum` are those of Batch Renorm, the
// limits are fixed. There is a bias and no weight.
models::MakeNorm tensor_ops_norm(double eps, double momentum, double r_max, double d_max);

}  // namespace renorm::bench
