// Functions for all Batch Renorm layers of a model.
#pragma once

#include <renorm/nn/batch_renorm.h>

#include <cstdint>
#include <string>
#include <vector>

namespace renorm {

// A layer with its path in the model: "stem.norm", or empty if the model itself is the layer.
template <class Layer>
struct Named {
  std::string path;
  Layer* layer;  // owned by the model
};
using NamedLayer = Named<BatchRenormLayer>;
using ConstNamedLayer = Named<const BatchRenormLayer>;

// All layers, each once, in the order of registration.
RENORM_API std::vector<NamedLayer> batch_renorm_layers(torch::nn::Module& model);
RENORM_API std::vector<ConstNamedLayer> batch_renorm_layers(const torch::nn::Module& model);

// Deferred statistics: commit() of every layer, once per step. Returns the number of layers that moved. If
// collected statistics are not finite, throws NonFiniteStatistics, discards all and moves none.
RENORM_API int64_t commit(torch::nn::Module& model);
// Deferred statistics: discard() of every layer, for a step that is not taken.
RENORM_API void discard(torch::nn::Module& model);
// Deferred statistics: collected() of every layer in one tensor, and set_collected() of every layer from it.
// One sum of this tensor over all processes, before commit(), averages over all of them.
RENORM_API torch::Tensor collected(const torch::nn::Module& model);
RENORM_API void set_collected(torch::nn::Module& model, const torch::Tensor& values);

RENORM_API void set_statistics(torch::nn::Module& model, Statistics statistics);
RENORM_API void set_clip(torch::nn::Module& model, const ClipSchedule& clip);
RENORM_API void set_step(torch::nn::Module& model, int64_t step);
RENORM_API void use_batch_statistics(torch::nn::Module& model, bool on);

// The telemetry of each layer, in the order of batch_renorm_layers().
struct LayerTelemetry {
  std::string path;
  ClipTelemetry telemetry;
};
RENORM_API std::vector<LayerTelemetry> clip_telemetry(const torch::nn::Module& model);
RENORM_API void clear_clip_telemetry(torch::nn::Module& model);

// Sets every layer's `name` to its path, so that errors name the layer.
RENORM_API void name_layers(torch::nn::Module& model);

}  // namespace renorm
