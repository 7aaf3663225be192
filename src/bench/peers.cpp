#include "bench/peers.h"

#include <torch/torch.h>

#include <memory>
#include <vector>

namespace renorm::bench {
namespace {

constexpr double kUnusedMomentum = 0.1;

// [c] against [n, c, ...].
at::Tensor per_channel(const at::Tensor& value, const at::Tensor& like) {
  std::vector<int64_t> sizes(static_cast<size_t>(like.dim()), 1);
  sizes[1] = value.numel();
  return value.view(sizes);
}

// The ReLU alone into new memory, as torch::relu does; after an addition in place, as torchvision's nets do.
at::Tensor ended(const at::Tensor& y, Ending ending, const at::Tensor& residual) {
  switch (ending) {
    case Ending::kRelu:
      return at::relu(y);
    case Ending::kAddRelu:
      return at::Tensor(y).add_(residual).relu_();
    case Ending::kNone:
      break;
  }
  return y;
}

class TensorOpsNormImpl : public torch::nn::Module {
 public:
  TensorOpsNormImpl(int64_t channels, double eps, double momentum, double r_max, double d_max,
                    Activation activation)
      : eps_(eps), momentum_(momentum), r_max_(r_max), d_max_(d_max), activation_(activation) {
    bias_ = register_parameter("bias", torch::zeros({channels}));
    running_mean_ = register_buffer("running_mean", torch::zeros({channels}));
    running_std_ = register_buffer("running_std", torch::ones({channels}));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const auto per_channel = [](const torch::Tensor& value) { return value.view({1, -1, 1, 1}); };
    const torch::Tensor running_mean = per_channel(running_mean_);
    const torch::Tensor running_std = per_channel(running_std_);
    torch::Tensor y;
    if (is_training()) {
      const torch::Tensor mean = x.mean({0, 2, 3}, /*keepdim=*/true);
      const torch::Tensor std = (x.var({0, 2, 3}, /*unbiased=*/false, /*keepdim=*/true) + eps_).sqrt();
      const torch::Tensor r = (std / running_std).detach().clamp(1.0 / r_max_, r_max_);
      const torch::Tensor d = ((mean - running_mean) / running_std).detach().clamp(-d_max_, d_max_);
      y = (x - mean) / std * r + d + per_channel(bias_);
      const torch::NoGradGuard no_grad;
      running_mean_.lerp_(mean.flatten(), momentum_);
      running_std_.lerp_(std.flatten(), momentum_);
    } else {
      y = (x - running_mean) / running_std + per_channel(bias_);
    }
    return activation_ == Activation::kRelu ? y.relu_() : y;
  }

 private:
  double eps_;
  double momentum_;
  double r_max_;
  double d_max_;
  Activation activation_;
  torch::Tensor bias_;
  torch::Tensor running_mean_;
  torch::Tensor running_std_;
};

}  // namespace

Native::Native(const Data& data) : data_(data) {
  auto result = at::native_batch_norm(data_.x, data_.weight, data_.bias, {}, {}, true, kUnusedMomentum, kEps);
  relu_output_ = at::relu(std::get<0>(result));
  added_output_ = ended(std::get<0>(result), Ending::kAddRelu, data_.residual);
  saved_mean_ = std::get<1>(result);
  saved_inv_std_ = std::get<2>(result);
}

at::Tensor Native::forward(Ending ending) const {
  const at::Tensor y = std::get<0>(
      at::native_batch_norm(data_.x, data_.weight, data_.bias, {}, {}, true, kUnusedMomentum, kEps));
  return ended(y, ending, data_.residual);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> Native::backward(Ending ending) const {
  at::Tensor dy = data_.dy;
  if (ending == Ending::kRelu) dy = at::threshold_backward(dy, relu_output_, 0);
  if (ending == Ending::kAddRelu) dy = at::threshold_backward(dy, added_output_, 0);
  return at::native_batch_norm_backward(dy, data_.x, data_.weight, {}, {}, saved_mean_, saved_inv_std_, true,
                                        kEps, {true, true, true});
}

at::Tensor Native::inference(Ending ending) const {
  const at::Tensor y =
      std::get<0>(at::native_batch_norm(data_.x, data_.weight, data_.bias, data_.running_mean,
                                        data_.running_var, false, kUnusedMomentum, kEps));
  return ended(y, ending, data_.residual);
}

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

models::MakeNorm tensor_ops_norm(double eps, double momentum, double r_max, double d_max) {
  return [=](int64_t channels, Activation activation) {
    return torch::nn::AnyModule(
        std::make_shared<TensorOpsNormImpl>(channels, eps, momentum, r_max, d_max, activation));
  };
}

}  // namespace renorm::bench
