// The normalization layers of a model: an argument, so that each model is written once.
#pragma once

#include <renorm/nn/batch_renorm.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>

namespace renorm::models {

// Makes the layer after a convolution: Tensor -> Tensor, [n, channels, h, w], including the ReLU if
// `activation` is one.
using MakeNorm = std::function<torch::nn::AnyModule(int64_t channels, Activation activation)>;

// Batch Renorm with all options from `like` except channels and activation; with ClipSchedule::batch_norm()
// it is batchnorm.
MakeNorm batch_renorm(const BatchRenormOptions& like);

// LibTorch's own BatchNorm2d and a separate ReLU, for comparison. `momentum` and `eps` are as in Batch
// Renorm. Without `scale` the weight is a buffer of ones instead of a parameter. Parameters have the same
// names as in Batch Renorm.
MakeNorm native_batch_norm(double eps, double momentum, bool scale);

// LibTorch's group normalization, in groups of 16 channels, or of the largest divisor of 16 that divides
// them, and a separate ReLU. It has no averages: training and inference are the same. Parameters as in
// native_batch_norm.
MakeNorm group_norm(double eps, bool scale);

// The layer of group_norm().
class GroupNormImpl : public torch::nn::Module {
 public:
  GroupNormImpl(int64_t channels, double eps, bool scale, Activation activation);
  torch::Tensor forward(const torch::Tensor& input);
  double eps() const { return eps_; }

 private:
  int64_t groups_;
  double eps_;
  Activation activation_;
  torch::Tensor weight_;
  torch::Tensor bias_;
};

}  // namespace renorm::models
