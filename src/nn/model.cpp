#include "renorm/nn/model.h"

#include <algorithm>

#include "nn/account.h"

namespace renorm {
namespace {

template <class Layer, class Module>
std::vector<Named<Layer>> layers_of(Module& model) {
  std::vector<Named<Layer>> layers;
  const auto add = [&layers](const std::string& path, Layer* layer) {
    const bool known =
        std::any_of(layers.begin(), layers.end(), [&](const Named<Layer>& n) { return n.layer == layer; });
    if (layer != nullptr && !known) layers.push_back({path, layer});
  };
  // named_modules() can include the model itself only if a shared pointer owns it.
  add("", dynamic_cast<Layer*>(&model));
  for (const auto& module : model.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    add(module.key(), dynamic_cast<Layer*>(module.value().get()));
  }
  return layers;
}

}  // namespace

std::vector<NamedLayer> batch_renorm_layers(torch::nn::Module& model) {
  return layers_of<BatchRenormLayer>(model);
}

std::vector<ConstNamedLayer> batch_renorm_layers(const torch::nn::Module& model) {
  return layers_of<const BatchRenormLayer>(model);
}

// All layers are checked before the first one moves.
int64_t commit(torch::nn::Module& model) {
  const std::vector<NamedLayer> layers = batch_renorm_layers(model);
  for (const NamedLayer& named : layers) named.layer->check_options();
  try {
    for (const NamedLayer& named : layers) named.layer->check_collected();
  } catch (const NonFiniteStatistics&) {
    discard(model);
    throw;
  }
  int64_t moved = 0;
  for (const NamedLayer& named : layers) moved += named.layer->commit() ? 1 : 0;
  return moved;
}

void discard(torch::nn::Module& model) {
  for (const NamedLayer& named : batch_renorm_layers(model)) named.layer->discard();
}

torch::Tensor collected(const torch::nn::Module& model) {
  std::vector<torch::Tensor> values = {torch::empty({0}, torch::kDouble)};
  for (const ConstNamedLayer& named : batch_renorm_layers(model)) values.push_back(named.layer->collected());
  return torch::cat(values);
}

// All layers are checked before the first one changes.
void set_collected(torch::nn::Module& model, const torch::Tensor& values) {
  const std::vector<NamedLayer> layers = batch_renorm_layers(model);
  int64_t size = 0;
  for (const NamedLayer& named : layers) size += 1 + 2 * named.layer->channels();
  TORCH_CHECK(values.defined(), "renorm::set_collected: values must be a tensor, got an undefined one");
  TORCH_CHECK(values.dim() == 1 && values.size(0) == size, "renorm::set_collected: values must be [", size,
              "] as made by collected(), got ", values.sizes());
  const auto for_each = [&](const auto& call) {
    int64_t first = 0;
    for (const NamedLayer& named : layers) {
      const int64_t count = 1 + 2 * named.layer->channels();
      call(named, values.slice(0, first, first + count));
      first += count;
    }
  };
  for_each([](const NamedLayer& named, const torch::Tensor& part) {
    const std::string who = "renorm::set_collected: layer \"" + named.path + "\"";
    check_collected_values(who, part, named.layer->channels());
  });
  for_each([](const NamedLayer& named, const torch::Tensor& part) { named.layer->set_collected(part); });
}

void set_statistics(torch::nn::Module& model, Statistics statistics) {
  for (const NamedLayer& named : batch_renorm_layers(model)) named.layer->options.statistics(statistics);
}

void set_clip(torch::nn::Module& model, const ClipSchedule& clip) {
  for (const NamedLayer& named : batch_renorm_layers(model)) named.layer->options.clip(clip);
}

void set_step(torch::nn::Module& model, int64_t step) {
  for (const NamedLayer& named : batch_renorm_layers(model)) {
    if (named.layer->num_batches_tracked.defined()) named.layer->set_step(step);
  }
}

void use_batch_statistics(torch::nn::Module& model, bool on) {
  for (const NamedLayer& named : batch_renorm_layers(model)) named.layer->use_batch_statistics(on);
}

std::vector<LayerTelemetry> clip_telemetry(const torch::nn::Module& model) {
  std::vector<LayerTelemetry> all;
  for (const ConstNamedLayer& named : batch_renorm_layers(model)) {
    all.push_back({named.path, named.layer->clip_telemetry()});
  }
  return all;
}

void clear_clip_telemetry(torch::nn::Module& model) {
  for (const NamedLayer& named : batch_renorm_layers(model)) named.layer->clear_clip_telemetry();
}

void name_layers(torch::nn::Module& model) {
  for (const NamedLayer& named : batch_renorm_layers(model)) named.layer->options.name(named.path);
}

}  // namespace renorm
