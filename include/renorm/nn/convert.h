// Conversion between batchnorm and Batch Renorm, and folding into the preceding layer. Inference is
// unchanged.
#pragma once

#include <renorm/nn/batch_renorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace renorm {

// A new layer with batchnorm's parameters, averages (running_std = sqrt(running_var + eps)), eps, momentum,
// step, dtype (float32 for narrower ones), device and train/eval mode. Its inference equals batchnorm's. A
// cumulative average (no momentum) becomes momentum 0.01; batchnorm without averages becomes a layer without
// them.
BatchRenorm1d from_batch_norm(const torch::nn::BatchNorm1d& norm,
                              const ClipSchedule& clip = ClipSchedule::paper());
BatchRenorm2d from_batch_norm(const torch::nn::BatchNorm2d& norm,
                              const ClipSchedule& clip = ClipSchedule::paper());
BatchRenorm3d from_batch_norm(const torch::nn::BatchNorm3d& norm,
                              const ClipSchedule& clip = ClipSchedule::paper());

// The reverse: running_var = running_std^2 - eps. A running_std below sqrt(eps) is an error, because
// batchnorm divides by no less. A fused ReLU is an error, because batchnorm has no activation. Groups are
// dropped: inference has none. A missing weight (scale off) becomes 1 and requires no gradient.
torch::nn::BatchNorm1d to_batch_norm(const BatchRenorm1d& norm);
torch::nn::BatchNorm2d to_batch_norm(const BatchRenorm2d& norm);
torch::nn::BatchNorm3d to_batch_norm(const BatchRenorm3d& norm);

// A new layer with a bias that computes inference of norm(layer(x)). The norm must have averages, as many
// output channels as the layer, and no fused ReLU (apply it after the folded layer). Dtype, device and
// train/eval mode are the layer's; the global random state is left as it was.
torch::nn::Conv1d fold(const torch::nn::Conv1d& layer, const BatchRenorm1d& norm);
torch::nn::Conv2d fold(const torch::nn::Conv2d& layer, const BatchRenorm2d& norm);
torch::nn::Conv3d fold(const torch::nn::Conv3d& layer, const BatchRenorm3d& norm);
torch::nn::Linear fold(const torch::nn::Linear& layer, const BatchRenorm1d& norm);

}  // namespace renorm
