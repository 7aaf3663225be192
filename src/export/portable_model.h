// Nets that compute what a trained one computes in evaluation, without its norm layers: of LibTorch's own
// operators alone, so that they can be used where renorm is not installed.
#pragma once

#include <memory>
#include <string>

#include "models/model.h"

namespace renorm::train {

// What a net is made from besides its weights.
struct Blueprint {
  std::string model;  // "resnet50", "convnet:8/2"
  models::InputShape input;
};

// In both: the result is in evaluation mode, computes in float and shares no memory with `model`, which was
// made from `blueprint` with any of the norms of models/norm.h and may be in either mode. Names of layers
// stay. LibTorch's default generator is drawn from.

// Each norm becomes the inference of LibTorch's batch_norm, with parameters weight and bias and buffers
// running_mean and running_var = running_std^2, and eps = 0, which running_std has inside.
std::shared_ptr<models::Classifier> with_plain_norms(const models::Classifier& model,
                                                     const Blueprint& blueprint);
// Each norm is folded into its convolution, which gets a bias.
std::shared_ptr<models::Classifier> folded(const models::Classifier& model, const Blueprint& blueprint);

// A net as `folded` makes it, with weights of no meaning. Throws as models::make_model does.
std::shared_ptr<models::Classifier> blank_folded(const Blueprint& blueprint);

}  // namespace renorm::train
