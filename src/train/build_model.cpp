#include "train/build_model.h"

#include <fmt/format.h>
#include <renorm/nn/model.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/text.h"
#include "models/metric_net.h"
#include "train/clip_spec.h"

namespace renorm::train {
namespace {

// Memory for the activations that one pass keeps for the backward pass. A constant, not a share of the
// machine's memory: the order of summation, and so the bits of a run, must not depend on what else is
// running.
constexpr double kActivationBytes = 2.0 * (1 << 30);
// The outputs of a convolution and of its norm, as floats.
constexpr double kBytesPerValue = 2.0 * sizeof(float);

// Of one example.
struct Activations {
  int64_t values = 0;                                           // that pass through norms
  int64_t min_positions = std::numeric_limits<int64_t>::max();  // values per channel in the smallest norm
};

// Replaces the norm and counts the values that pass through it.
class CountingNormImpl : public torch::nn::Module {
 public:
  explicit CountingNormImpl(std::shared_ptr<Activations> counts) : counts_(std::move(counts)) {}

  torch::Tensor forward(const torch::Tensor& x) {
    counts_->values += x.numel();
    counts_->min_positions = std::min(counts_->min_positions, x.numel() / x.size(1));
    return x;
  }

 private:
  std::shared_ptr<Activations> counts_;
};
TORCH_MODULE(CountingNorm);

models::InputShape input_of(const data::Description& data) {
  return {data.channels, data.height, data.width, static_cast<int64_t>(data.classes.size())};
}

// In training mode, so that an auxiliary head counts.
Activations activations_per_example(const Config& config, const data::Description& data) {
  const auto counts = std::make_shared<Activations>();
  const auto count = [counts](int64_t /*channels*/, Activation /*activation*/) {
    return torch::nn::AnyModule(CountingNorm(counts));
  };
  const torch::NoGradGuard no_grad;
  const auto model = models::make_model(config.model, input_of(data), count);
  model->forward(torch::zeros({1, data.channels, data.height, data.width}));
  return *counts;
}

void start_biases(const Config& config, models::Classifier& model) {
  if (config.norm_bias == 0.0) return;
  const std::vector<torch::Tensor> biases = model.dense_norm_biases();
  if (biases.empty()) {
    throw UsageError(fmt::format("--norm-bias needs a model with dense layers, such as mlp; {} has none",
                                 printable(config.model)));
  }
  const torch::NoGradGuard no_grad;
  for (torch::Tensor bias : biases) bias.fill_(config.norm_bias);
}

torch::Dtype dtype_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat:
      break;
    case Dtype::kBf16:
      return torch::kBFloat16;
  }
  return torch::kFloat;
}

}  // namespace

torch::MemoryFormat memory_format_of(const Config& config) {
  switch (config.memory_format) {
    case MemoryFormat::kNchw:
      return torch::MemoryFormat::Contiguous;
    case MemoryFormat::kChannelsLast:
      return torch::MemoryFormat::ChannelsLast;
    case MemoryFormat::kAuto:
      break;
  }
  return models::model_kind(config.model).memory_format;
}

models::MakeNorm norm_of(const Config& config) {
  ClipSchedule clip = ClipSchedule::batch_norm();
  switch (config.norm) {
    case NormKind::kNative:
      return models::native_batch_norm(config.norm_eps, config.norm_momentum, config.norm_scale);
    case NormKind::kGroupnorm:
      return models::group_norm(config.norm_eps, config.norm_scale);
    case NormKind::kRenorm:
      clip = to_schedule(parse_clip(config.clip), config.steps);
      break;
    case NormKind::kBatchnorm:
      break;
  }
  return models::batch_renorm(BatchRenormOptions(1)
                                  .eps(config.norm_eps)
                                  .momentum(config.norm_momentum)
                                  .scale(config.norm_scale)
                                  .group_size(config.sync_norm ? 0 : config.microbatch)
                                  .statistics(Statistics::kDeferred)
                                  .warnings(false)  // the command shows the hold itself
                                  .clip(clip));
}

std::shared_ptr<models::Classifier> build_model(const Config& config, const data::Description& data) {
  return build_model(config, data, norm_of(config));
}

std::shared_ptr<models::Classifier> build_model(const Config& config, const data::Description& data,
                                                const models::MakeNorm& make_norm) {
  torch::manual_seed(RandomStream(config.seed, Purpose::kModel).bits());
  std::shared_ptr<models::Classifier> model;
  if (config.objective == Objective::kMetric) {
    models::InputShape input = input_of(data);
    const int64_t classes = std::exchange(input.classes, config.embedding);
    const auto net = models::make_model(config.model, input, make_norm);
    model = std::make_shared<models::MetricNet>(net, config.embedding, classes);
    name_layers(*model);
  } else {
    model = models::make_model(config.model, input_of(data), make_norm);
  }
  start_biases(config, *model);
  model->computation = {dtype_of(config.dtype), memory_format_of(config)};
  return model;
}

bool can_normalize(const Config& config, const data::Description& data, int64_t examples) {
  if (config.norm == NormKind::kGroupnorm) return true;
  return examples > 1 || activations_per_example(config, data).min_positions > 1;
}

int64_t examples_per_pass(const Config& config, const data::Description& data) {
  const int64_t all = config.workers * config.minibatch;
  // LibTorch's layer has no groups: one pass is one group.
  if (config.norm == NormKind::kNative) return config.microbatch;
  if (config.sync_norm) return all;
  int64_t max = config.chunk;
  if (max == 0) {
    const double each = kBytesPerValue * static_cast<double>(activations_per_example(config, data).values);
    max = static_cast<int64_t>(std::min(static_cast<double>(all), kActivationBytes / std::max(each, 1.0)));
  }
  const int64_t groups = std::max<int64_t>(1, std::min(max, all) / config.microbatch);
  return groups * config.microbatch;
}

}  // namespace renorm::train
