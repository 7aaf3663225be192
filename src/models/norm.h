// The normalization layers of a model: an argument, so that each model is written once.
#pragma once

#include <renorm/nn/batch_renorm.h>
#include <torch/nn/modules/container/any.h>

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

}  // namespace renorm::models
