// Shared by the tests of exported models: small nets as after some training, and their cards.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <ostream>
#include <string>

#include "export/ready_model.h"
#include "models/model.h"
#include "train/build_model.h"

namespace renorm::testing {

struct Kind {
  std::string model;
  std::string norm;
  bool scale;
};

inline std::ostream& operator<<(std::ostream& stream, const Kind& kind) {
  return stream << kind.model << ' ' << kind.norm << (kind.scale ? " with scale" : "");
}

inline exporting::ModelCard card_for(const Kind& kind, bool folded) {
  exporting::ModelCard card;
  card.renorm = "0";
  card.model = kind.model;
  card.folded = folded;
  card.norm = {parse_choice<train::NormKind>(kind.norm), kind.scale, 1e-3};
  card.weights = "raw";
  card.input = {3, 12, 10, {0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}, 1.0};
  card.classes = {"a", "b", "c", "d", "e"};
  return card;
}

// Averages and parameters as after some training: away from 0 and 1, the averages positive.
inline void randomize(const torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  for (train::NamedTensor& named : train::named_state(model)) {
    torch::Tensor& tensor = named.tensor;
    if (!tensor.is_floating_point()) continue;
    const std::string last = named.name.substr(named.name.rfind('.') + 1);
    if (last == "running_std" || last == "running_var") {
      tensor.uniform_(0.3, 2.0);
    } else if (tensor.dim() == 1) {
      tensor.normal_(last == "weight" ? 1.0 : 0.0, 0.4);
    } else if (named.name.find("classifier") != std::string::npos) {
      tensor.normal_(0.0, 0.2);
    }
  }
}

inline std::shared_ptr<models::Classifier> trained(const Kind& kind) {
  torch::manual_seed(1702);
  train::Config config;
  config.norm = parse_choice<train::NormKind>(kind.norm);
  config.norm_scale = kind.scale;
  config.steps = 100;
  const exporting::Blueprint blueprint = exporting::blueprint_of(card_for(kind, false));
  auto model = models::make_model(blueprint.model, blueprint.input, train::norm_of(config));
  randomize(*model);
  model->eval();
  return model;
}

}  // namespace renorm::testing
