// Nets with the outputs of a trained one in evaluation, made only of LibTorch's own operators, so that they
// can be used without renorm.
#pragma once

#include <memory>
#include <string>

#include "models/model.h"

namespace renorm::exporting {

// Everything a net is made from but its weights.
struct Blueprint {
  std::string model;  // "resnet50", "convnet:8/2"
  models::InputShape input;
};

// Both return a net in evaluation mode that computes in float, has the same layer names and shares no memory
// with `model`. `model` was made from `blueprint` with any of the norms of models/norm.h and may be in either
// mode. Both draw from LibTorch's default generator.

// Group normalization stays. Each other norm becomes the inference of LibTorch's batch_norm, with parameters
// weight and bias and buffers running_mean and running_var = running_std^2, and eps = 0, because running_std
// includes it.
std::shared_ptr<models::Classifier> with_plain_norms(const models::Classifier& model,
                                                     const Blueprint& blueprint);
// Each norm is folded into its convolution, which gets a bias. Throws UsageError for group normalization.
std::shared_ptr<models::Classifier> folded(const models::Classifier& model, const Blueprint& blueprint);

// A net as `folded` returns it, with arbitrary weights. Throws as models::make_model does.
std::shared_ptr<models::Classifier> blank_folded(const Blueprint& blueprint);

}  // namespace renorm::exporting
