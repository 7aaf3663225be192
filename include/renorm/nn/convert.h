// Conversion between batchnorm and Batch Renorm, of layers and of whole models, and folding into the
// preceding layer. Inference is unchanged.
#pragma once

#include <renorm/nn/batch_renorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <string>
#include <vector>

namespace renorm {

// The step of a layer made from batchnorm: kRestart = 0, the start of the clip schedule; kKeep = batchnorm's
// number of batches.
enum class StepOrigin { kRestart, kKeep };

// A new layer with batchnorm's parameters, averages (running_std = sqrt(running_var + eps)), eps, momentum,
// dtype (float32 for narrower ones), device and train/eval mode. Its inference equals batchnorm's. An eps
// that is 0 as a float becomes the smallest normal float. Batchnorm without averages becomes a layer without
// them. A cumulative average keeps its step in any case: it is the number of batches in the average.
RENORM_API BatchRenorm1d from_batch_norm(const torch::nn::BatchNorm1d& norm,
                                         const ClipSchedule& clip = ClipSchedule::paper(),
                                         StepOrigin step = StepOrigin::kRestart);
RENORM_API BatchRenorm2d from_batch_norm(const torch::nn::BatchNorm2d& norm,
                                         const ClipSchedule& clip = ClipSchedule::paper(),
                                         StepOrigin step = StepOrigin::kRestart);
RENORM_API BatchRenorm3d from_batch_norm(const torch::nn::BatchNorm3d& norm,
                                         const ClipSchedule& clip = ClipSchedule::paper(),
                                         StepOrigin step = StepOrigin::kRestart);

// The treatment of a fused ReLU where the result has none: kRefuse = an error; kDrop = the caller applies a
// ReLU after the result.
enum class FusedRelu { kRefuse, kDrop };

// The reverse: running_var = running_std^2 - eps. A running_std below sqrt(eps) is an error, because
// batchnorm divides by no less. Groups are dropped: inference has none. A missing weight (scale off) becomes
// 1 and requires no gradient.
RENORM_API torch::nn::BatchNorm1d to_batch_norm(const BatchRenorm1d& norm,
                                                FusedRelu relu = FusedRelu::kRefuse);
RENORM_API torch::nn::BatchNorm2d to_batch_norm(const BatchRenorm2d& norm,
                                                FusedRelu relu = FusedRelu::kRefuse);
RENORM_API torch::nn::BatchNorm3d to_batch_norm(const BatchRenorm3d& norm,
                                                FusedRelu relu = FusedRelu::kRefuse);

// A new layer with a bias that computes inference of norm(layer(x)). The norm must have averages and as many
// output channels as the layer. Dtype, device and train/eval mode are the layer's; the global random state is
// left as it was.
RENORM_API torch::nn::Conv1d fold(const torch::nn::Conv1d& layer, const BatchRenorm1d& norm,
                                  FusedRelu relu = FusedRelu::kRefuse);
RENORM_API torch::nn::Conv2d fold(const torch::nn::Conv2d& layer, const BatchRenorm2d& norm,
                                  FusedRelu relu = FusedRelu::kRefuse);
RENORM_API torch::nn::Conv3d fold(const torch::nn::Conv3d& layer, const BatchRenorm3d& norm,
                                  FusedRelu relu = FusedRelu::kRefuse);
RENORM_API torch::nn::Linear fold(const torch::nn::Linear& layer, const BatchRenorm1d& norm,
                                  FusedRelu relu = FusedRelu::kRefuse);

// Paths of layers by patterns in which * stands for any text: {"trunk.*"}. A path is selected if a pattern of
// `include` matches and none of `exclude` does.
struct Selection {
  std::vector<std::string> include = {"*"};
  std::vector<std::string> exclude;
};

// Replaces every selected BatchNorm1d, 2d and 3d inside of Sequential, ModuleList and ModuleDict, at any
// depth, by from_batch_norm() of it, and returns the paths. A selected batchnorm that a class of your own
// holds as a member is an error, because only that class can change the member's type, and so is a subclass
// of batchnorm. A layer with several paths becomes one layer; it is an error to select only some of them.
// After an error the model is as it was.
RENORM_API std::vector<std::string> convert(torch::nn::Module& model,
                                            const ClipSchedule& clip = ClipSchedule::paper(),
                                            const Selection& selection = {},
                                            StepOrigin step = StepOrigin::kRestart);

// The reverse, by to_batch_norm().
RENORM_API std::vector<std::string> revert(torch::nn::Module& model, const Selection& selection = {},
                                           FusedRelu relu = FusedRelu::kRefuse);

}  // namespace renorm
