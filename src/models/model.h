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

// How a net computes. Parameters and averages are float for every dtype of the activations.
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
  // The biases of the norms of dense layers; none in most models.
  virtual std::vector<torch::Tensor> dense_norm_biases() { return {}; }

  Computation computation;
  // For random draws in training: one seed per image, so that a draw does not depend on the other images of a
  // pass. With fewer seeds than images, LibTorch's default generator draws.
  std::vector<uint64_t> image_seeds;

 protected:
  // `images` and the activations have the dtype and memory format of `computation`.
  virtual Logits compute(const torch::Tensor& images) = 0;
};

struct InputShape {
  int64_t channels = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t classes = 0;
};

// A model from "name" or "name:spec". Weights are drawn from LibTorch's default generator: seed it first.
// Layers are named (name_layers). Throws UsageError: an unknown name (with the nearest), an invalid spec
// (with the place of the error), an input that is too small for the model.
std::shared_ptr<Classifier> make_model(const std::string& spec, const InputShape& input,
                                       const MakeNorm& make_norm);
// Throws the same errors, except those of the input, without making a model.
void check_model(const std::string& spec);

struct ModelKind {
  std::string name;                   // "convnet"
  std::string usage;                  // "convnet[:SPEC]"
  std::string help;                   // one line
  std::string details;                // more lines, each with its newline
  std::string example;                // a spec for make_model, for listing layers and parameters
  InputShape input;                   // of the listing
  int64_t image_size;                 // default pixels per side for images from a folder
  torch::MemoryFormat memory_format;  // the faster one
};
const std::vector<ModelKind>& model_kinds();
// The kind of a "name[:spec]". Throws UsageError for an unknown name (with the nearest).
const ModelKind& model_kind(const std::string& spec);

}  // namespace renorm::models
