#include "renorm/nn/convert.h"

#include <ATen/ATen.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>

namespace renorm {
namespace {

constexpr double kDefaultMomentum = 0.01;

// A running_std that was rounded to float may lie this much (relative) below the sqrt(eps) it stands for.
constexpr double kRoundingSlack = 4.0 * std::numeric_limits<float>::epsilon();

at::Tensor as_double(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU, at::kDouble); }

// Does nothing if `from` is undefined.
void copy_parameter(const at::Tensor& from, at::Tensor* to) {
  if (!from.defined()) return;
  to->copy_(from);
  to->set_requires_grad(from.requires_grad());
}

// Puts `layer` where `reference` (undefined: nowhere in particular) is, in its dtype.
template <typename Layer>
void match(const at::Tensor& reference, Layer* layer) {
  if (reference.defined()) (*layer)->to(reference.device(), reference.scalar_type());
}

template <typename Renorm, typename Norm>
Renorm renorm_from(const Norm& norm, const ClipSchedule& clip) {
  const torch::NoGradGuard no_grad;
  const double eps = norm->options.eps();
  Renorm layer(BatchRenormOptions(norm->options.num_features())
                   .eps(eps)
                   .momentum(norm->options.momentum().value_or(kDefaultMomentum))
                   .affine(norm->options.affine())
                   .track_running_stats(norm->options.track_running_stats())
                   .clip(clip));
  match(norm->running_mean.defined() ? norm->running_mean : norm->weight, &layer);
  copy_parameter(norm->weight, &layer->weight);
  copy_parameter(norm->bias, &layer->bias);
  if (norm->running_mean.defined()) {
    layer->running_mean.copy_(norm->running_mean);
    layer->running_std.copy_(as_double(norm->running_var).add(eps).sqrt());
    layer->num_batches_tracked.copy_(norm->num_batches_tracked);
  }
  layer->train(norm->is_training());
  return layer;
}

at::Tensor running_var(const at::Tensor& running_std, double eps) {
  const at::Tensor std = as_double(running_std);
  const int64_t least = std.argmin().item<int64_t>();
  const double least_std = std[least].item<double>();
  TORCH_CHECK(least_std >= std::sqrt(eps) * (1.0 - kRoundingSlack),
              "renorm::to_batch_norm: running_std of channel ", least,
              " must be >= sqrt(eps) = ", std::sqrt(eps), ", because batchnorm divides by no less, got ",
              least_std);
  return std.square().sub(eps).clamp_min(0.0);
}

template <typename Norm, typename Renorm>
Norm norm_from(const Renorm& layer) {
  TORCH_CHECK(layer->options.activation() == Activation::kNone,
              "renorm::to_batch_norm: activation must be kNone, because batchnorm has none, got kRelu");
  const torch::NoGradGuard no_grad;
  const double eps = layer->options.eps();
  const bool tracks = layer->running_mean.defined();
  Norm norm(torch::nn::BatchNormOptions(layer->options.num_features())
                .eps(eps)
                .momentum(layer->options.momentum())
                .affine(layer->bias.defined())
                .track_running_stats(tracks));
  match(tracks ? layer->running_mean : layer->bias, &norm);
  copy_parameter(layer->weight, &norm->weight);
  copy_parameter(layer->bias, &norm->bias);
  if (norm->weight.defined() && !layer->weight.defined()) norm->weight.set_requires_grad(false);
  if (tracks) {
    norm->running_mean.copy_(layer->running_mean);
    norm->running_var.copy_(running_var(layer->running_std, eps));
    // Batchnorm's own `to` has turned the counter into a floating tensor.
    norm->num_batches_tracked.set_data(layer->num_batches_tracked.clone());
  }
  norm->train(layer->is_training());
  return norm;
}

}  // namespace

BatchRenorm1d from_batch_norm(const torch::nn::BatchNorm1d& norm, const ClipSchedule& clip) {
  return renorm_from<BatchRenorm1d>(norm, clip);
}

BatchRenorm2d from_batch_norm(const torch::nn::BatchNorm2d& norm, const ClipSchedule& clip) {
  return renorm_from<BatchRenorm2d>(norm, clip);
}

BatchRenorm3d from_batch_norm(const torch::nn::BatchNorm3d& norm, const ClipSchedule& clip) {
  return renorm_from<BatchRenorm3d>(norm, clip);
}

torch::nn::BatchNorm1d to_batch_norm(const BatchRenorm1d& norm) {
  return norm_from<torch::nn::BatchNorm1d>(norm);
}

torch::nn::BatchNorm2d to_batch_norm(const BatchRenorm2d& norm) {
  return norm_from<torch::nn::BatchNorm2d>(norm);
}

torch::nn::BatchNorm3d to_batch_norm(const BatchRenorm3d& norm) {
  return norm_from<torch::nn::BatchNorm3d>(norm);
}

}  // namespace renorm
