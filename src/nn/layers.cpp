#include <algorithm>

#include "renorm/nn/batch_renorm.h"

namespace renorm {

std::vector<NamedLayer> batch_renorm_layers(const torch::nn::Module& model) {
  std::vector<NamedLayer> layers;
  const auto add = [&layers](const std::string& path, BatchRenormLayer* layer) {
    const bool known =
        std::any_of(layers.begin(), layers.end(), [&](const NamedLayer& n) { return n.layer == layer; });
    if (layer != nullptr && !known) layers.push_back({path, layer});
  };
  // The model is asked for itself apart: listing it needs a shared pointer, which it may not have.
  add("", const_cast<BatchRenormLayer*>(dynamic_cast<const BatchRenormLayer*>(&model)));
  for (const auto& module : model.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    add(module.key(), dynamic_cast<BatchRenormLayer*>(module.value().get()));
  }
  return layers;
}

void name_layers(const torch::nn::Module& model) {
  for (const NamedLayer& named : batch_renorm_layers(model)) named.layer->options.name(named.path);
}

}  // namespace renorm
