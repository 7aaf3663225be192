#include "models/norm.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <memory>
#include <numeric>

namespace renorm::models {
namespace {

// The parameters are registered in this module, so that they are named as in Batch Renorm; BatchNorm2d
// computes with them.
class NativeNormImpl : public torch::nn::Module {
 public:
  NativeNormImpl(const torch::nn::BatchNormOptions& options, bool scale, Activation activation)
      : batch_norm_(register_module("batch_norm", torch::nn::BatchNorm2d(options))), activation_(activation) {
    const torch::Tensor ones = torch::ones({options.num_features()});
    // Weight decay would move a parameter; a buffer stays fixed.
    batch_norm_->weight = scale ? register_parameter("weight", ones) : register_buffer("weight", ones);
    batch_norm_->bias = register_parameter("bias", torch::zeros({options.num_features()}));
  }

  torch::Tensor forward(const torch::Tensor& input) {
    torch::Tensor output = batch_norm_->forward(input);
    // In place, as common batchnorm nets do, so that the comparison is fair.
    return activation_ == Activation::kRelu ? output.relu_() : output;
  }

 private:
  torch::nn::BatchNorm2d batch_norm_;
  Activation activation_;
};

constexpr int64_t kChannelsPerGroup = 16;

}  // namespace

MakeNorm batch_renorm(const BatchRenormOptions& like) {
  return [like](int64_t channels, Activation activation) {
    BatchRenormOptions options = like;
    options.num_features(channels).activation(activation);
    return torch::nn::AnyModule(BatchRenorm2d(options));
  };
}

MakeNorm native_batch_norm(double eps, double momentum, bool scale) {
  return [=](int64_t channels, Activation activation) {
    const auto options = torch::nn::BatchNormOptions(channels).eps(eps).momentum(momentum).affine(false);
    return torch::nn::AnyModule(std::make_shared<NativeNormImpl>(options, scale, activation));
  };
}

GroupNormImpl::GroupNormImpl(int64_t channels, double eps, bool scale, Activation activation)
    : groups_(channels / std::gcd(channels, kChannelsPerGroup)), eps_(eps), activation_(activation) {
  const torch::Tensor ones = torch::ones({channels});
  weight_ = scale ? register_parameter("weight", ones) : register_buffer("weight", ones);
  bias_ = register_parameter("bias", torch::zeros({channels}));
}

torch::Tensor GroupNormImpl::forward(const torch::Tensor& input) {
  // Parameters are float for every dtype of the activations.
  torch::Tensor output =
      torch::group_norm(input, groups_, weight_.to(input.scalar_type()), bias_.to(input.scalar_type()), eps_);
  return activation_ == Activation::kRelu ? output.relu_() : output;
}

MakeNorm group_norm(double eps, bool scale) {
  return [=](int64_t channels, Activation activation) {
    return torch::nn::AnyModule(std::make_shared<GroupNormImpl>(channels, eps, scale, activation));
  };
}

}  // namespace renorm::models
