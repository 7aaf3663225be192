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

// How a net computes. Parameters and averages are float whatever the dtype of the activations.
struct Computation {
  torch::Dtype dtype = torch::kFloat;                                   // or kBFloat16
  torch::MemoryFormat memory_format = torch::MemoryFormat::Contiguous;  // or ChannelsLast
};

// [n, classes] each, float.
struct Logits {
  torch::Tensor main;
  torch::Tensor auxiliary;  // undefined unless the model has an auxiliary head and is in training mode
};

// Images are [n, channels, height, width], float, of any memory format.
class Classifier : public torch::nn::Module {
 public:
  torch::Tensor forward(const torch::Tensor& images) { return logits(images).main; }
  Logits logits(const torch::Tensor& images);

  Computation computation;

 protected:
  // `images` are as `computation` says; so are the activations.
  virtual Logits compute(const torch::Tensor& images) = 0;
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
// The same errors but for those of the input, without making anything.
void check_model(const std::string& spec);

struct ModelKind {
  std::string name;                   // "convnet"
  std::string usage;                  // "convnet:SPEC"
  std::string help;                   // one line
  std::string details;                // more lines, each with its newline
  std::string example;                // a spec that make_model takes, for listing layers and parameters
  InputShape input;                   // the input it is listed with
  int64_t picture_size;               // pixels a side of people's own images unless told otherwise
  torch::MemoryFormat memory_format;  // the faster one
};
const std::vector<ModelKind>& model_kinds();
// The kind that a "name[:spec]" asks for. Throws UsageError for an unknown name (with the nearest).
const ModelKind& model_kind(const std::string& spec);

}  // namespace renorm::models
