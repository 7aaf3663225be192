// The normalization that a model is built with: handed in, so that a model exists once.
#pragma once

#include <renorm/nn/batch_renorm.h>
#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <functional>

namespace renorm::models {

// Makes the layer after a convolution: Tensor -> Tensor, [n, channels, h, w], with the ReLU inside if asked
// for.
using MakeNorm = std::function<torch::nn::AnyModule(int64_t channels, Activation activation)>;

// Batch Renorm with everything but channels and activation from `like`; with ClipSchedule::batch_norm() it is
// batchnorm.
MakeNorm batch_renorm(const BatchRenormOptions& like);

// LibTorch's own BatchNorm2d and a separate ReLU, for comparison. `momentum` and `eps` mean what they mean in
// Batch Renorm. Without `scale` the weight is a buffer of ones instead of a parameter. Parameters have the
// names that Batch Renorm gives them.
MakeNorm native_batch_norm(double eps, double momentum, bool scale);

}  // namespace renorm::models
