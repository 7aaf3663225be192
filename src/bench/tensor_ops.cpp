#include "bench/tensor_ops.h"

#include <torch/torch.h>

namespace renorm::bench {
namespace {

// [c] against [n, c, ...].
at::Tensor per_channel(const at::Tensor& value, const at::Tensor& like) {
  std::vector<int64_t> sizes(static_cast<size_t>(like.dim()), 1);
  sizes[1] = value.numel();
  return value.view(sizes);
}

}  // namespace

TensorOps::TensorOps(const Data& data) : data_(data) {
  data_.x = data.x.detach().requires_grad_();
  data_.weight = data.weight.detach().requires_grad_();
  data_.bias = data.bias.detach().requires_grad_();
  output_ = forward();
}

at::Tensor TensorOps::forward() const {
  const at::Tensor& x = data_.x;
  const std::vector<int64_t> dims = x.dim() == 2 ? std::vector<int64_t>{0} : std::vector<int64_t>{0, 2, 3};
  const at::Tensor running_mean = per_channel(data_.running_mean, x);
  const at::Tensor running_std = per_channel(data_.running_std, x);
  const at::Tensor batch_mean = x.mean(dims, true);
  const at::Tensor batch_std = (x.var(dims, /*unbiased=*/false, /*keepdim=*/true) + kEps).sqrt();
  const at::Tensor r = (batch_std / running_std).detach().clamp(1.0 / kRMax, kRMax);
  const at::Tensor d = ((batch_mean - running_mean) / running_std).detach().clamp(-kDMax, kDMax);
  const at::Tensor x_hat = (x - batch_mean) / batch_std * r + d;
  return per_channel(data_.weight, x) * x_hat + per_channel(data_.bias, x);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> TensorOps::backward() const {
  const auto gradients =
      torch::autograd::grad({output_}, {data_.x, data_.weight, data_.bias}, {data_.dy}, true);
  return {gradients[0], gradients[1], gradients[2]};
}

at::Tensor TensorOps::inference() const {
  const at::NoGradGuard no_grad;
  const at::Tensor& x = data_.x;
  const at::Tensor x_hat = (x - per_channel(data_.running_mean, x)) / per_channel(data_.running_std, x);
  return per_channel(data_.weight, x) * x_hat + per_channel(data_.bias, x);
}

}  // namespace renorm::bench
