#include "renorm/nn/convert.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/utils.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

namespace renorm {
namespace {

constexpr double kDefaultMomentum = 0.01;

// A running_std rounded to float may be this much (relative) below the sqrt(eps) it represents.
constexpr double kRoundingSlack = 4.0 * std::numeric_limits<float>::epsilon();

at::Tensor as_double(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU, at::kDouble); }

// Copies a parameter. Does nothing if `from` is undefined.
void copy_parameter(const at::Tensor& from, at::Tensor* to) {
  if (!from.defined()) return;
  to->copy_(from);
  to->set_requires_grad(from.requires_grad());
}

// Moves `layer` to the device and dtype of `reference`. Does nothing if that is undefined.
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
  const int64_t channel = std.argmin().item<int64_t>();
  const double min_std = std[channel].item<double>();
  TORCH_CHECK(min_std >= std::sqrt(eps) * (1.0 - kRoundingSlack),
              "renorm::to_batch_norm: running_std of channel ", channel,
              " must be >= sqrt(eps) = ", std::sqrt(eps), ", because batchnorm divides by no less, got ",
              min_std);
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
    // Batchnorm's `to` has converted the counter to a floating dtype.
    norm->num_batches_tracked.set_data(layer->num_batches_tracked.clone());
  }
  norm->train(layer->is_training());
  return norm;
}

// Restores the global random state: constructing a layer draws initial weights.
class KeepRandomState {
 public:
  KeepRandomState() : state_(generator().get_state()) {}
  ~KeepRandomState() { generator().set_state(state_); }
  KeepRandomState(const KeepRandomState&) = delete;
  KeepRandomState& operator=(const KeepRandomState&) = delete;

 private:
  static at::Generator generator() { return at::detail::getDefaultCPUGenerator(); }

  at::Tensor state_;
};

void check_foldable(const BatchRenormLayer& norm, int64_t channels) {
  TORCH_CHECK(norm.running_mean.defined(),
              "renorm::fold: norm must have averages, got track_running_stats = false");
  TORCH_CHECK(
      norm.options.activation() == Activation::kNone,
      "renorm::fold: norm must have activation kNone, got kRelu; apply the ReLU after the folded layer");
  TORCH_CHECK(norm.options.num_features() == channels, "renorm::fold: norm must have the layer's ", channels,
              " channels, got ", norm.options.num_features());
}

// A copy of the layer that has a bias. clone() registers the parameters that the options require.
template <typename Layer>
Layer copy_with_bias(const Layer& layer) {
  using Impl = typename Layer::ContainedType;
  const KeepRandomState keep_random_state;
  auto source = std::make_shared<Impl>(*layer);
  source->options.bias(true);
  const auto copy = std::dynamic_pointer_cast<Impl>(source->clone());
  copy->to(layer->weight.device(), layer->weight.scalar_type());
  return Layer(copy);
}

// norm(layer(x)) = scale * (W x + bias - running_mean) + norm's bias, with scale = norm's weight /
// running_std: the output channel is dimension 0 of W in every layer kind.
template <typename Layer>
Layer folded(const Layer& layer, const BatchRenormLayer& norm) {
  check_foldable(norm, layer->weight.size(0));
  const torch::NoGradGuard no_grad;
  at::Tensor scale = as_double(norm.running_std).reciprocal();
  if (norm.weight.defined()) scale.mul_(as_double(norm.weight));
  at::Tensor bias = as_double(norm.running_mean).neg();
  if (layer->bias.defined()) bias.add_(as_double(layer->bias));
  bias.mul_(scale);
  if (norm.bias.defined()) bias.add_(as_double(norm.bias));

  Layer result = copy_with_bias(layer);
  std::vector<int64_t> per_output(layer->weight.dim(), 1);
  per_output[0] = -1;
  result->weight.copy_(as_double(layer->weight).mul(scale.view(per_output)));
  result->bias.copy_(bias);
  return result;
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

torch::nn::Conv1d fold(const torch::nn::Conv1d& layer, const BatchRenorm1d& norm) {
  return folded(layer, *norm);
}

torch::nn::Conv2d fold(const torch::nn::Conv2d& layer, const BatchRenorm2d& norm) {
  return folded(layer, *norm);
}

torch::nn::Conv3d fold(const torch::nn::Conv3d& layer, const BatchRenorm3d& norm) {
  return folded(layer, *norm);
}

torch::nn::Linear fold(const torch::nn::Linear& layer, const BatchRenorm1d& norm) {
  return folded(layer, *norm);
}

}  // namespace renorm
