// Image classifiers by name.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/norm.h"

namespace renorm::models {

// [n, channels, height, width] -> logits [n, classes]. Contiguous or channels last; the layout is kept
// inside.
class Classifier : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& images) = 0;
};

struct InputShape {
  int64_t channels = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t classes = 0;
};

// A model from "name" or "name:spec". Weights are drawn from LibTorch's default generator: seed it first.
// Layers are named (name_layers). Throws UsageError: an unknown name (with the nearest), a spec that cannot
// be read (with its place), an input too small for the model.
std::shared_ptr<Classifier> make_model(const std::string& spec, const InputShape& input,
                                       const MakeNorm& make_norm);

struct ModelKind {
  std::string name;     // "convnet"
  std::string usage;    // "convnet:SPEC"
  std::string help;     // one line
  std::string details;  // more lines, each with its newline
  std::string example;  // a spec that make_model takes, for listing layers and parameters
  InputShape input;     // the input it is listed with
};
const std::vector<ModelKind>& model_kinds();
// The kind that a "name[:spec]" asks for. Throws UsageError for an unknown name (with the nearest).
const ModelKind& model_kind(const std::string& spec);

}  // namespace renorm::models
