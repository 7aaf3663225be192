#include "bench/tensor_ops_norm.h"

#include <torch/torch.h>

#include <memory>

namespace renorm::bench {
namespace {

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

models::MakeNorm tensor_ops_norm(double eps, double momentum, double r_max, double d_max) {
  return [=](int64_t channels, Activation activation) {
    return torch::nn::AnyModule(
        std::make_shared<TensorOpsNormImpl>(channels, eps, momentum, r_max, d_max, activation));
  };
}

}  // namespace renorm::bench
