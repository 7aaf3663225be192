#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/utils.h>

#include <memory>
#include <vector>

#include "renorm/nn/convert.h"

namespace renorm {
namespace {

// Building a layer draws its initial weights; folding must not shift the random numbers of its caller.
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

at::Tensor as_double(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU, at::kDouble); }

void check_foldable(const BatchRenormLayer& norm, int64_t channels) {
  TORCH_CHECK(norm.running_mean.defined(),
              "renorm::fold: norm must have averages, got track_running_stats = false");
  TORCH_CHECK(
      norm.options.activation() == Activation::kNone,
      "renorm::fold: norm must have activation kNone, got kRelu; apply the ReLU after the folded layer");
  TORCH_CHECK(norm.options.num_features() == channels, "renorm::fold: norm must have the layer's ", channels,
              " channels, got ", norm.options.num_features());
}

// A copy of the layer that has a bias, whatever the layer has: clone() registers what the options ask for.
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
