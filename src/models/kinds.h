// The kinds of models, for make_model alone.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "models/model.h"

namespace renorm::models {

// What follows the colon of "name:spec"; nothing if there is no colon.
using Spec = std::optional<std::string>;

struct Entry {
  ModelKind kind;
  int64_t least_side;                           // pixels of the smallest image
  void (*check_spec)(const std::string& spec);  // throws UsageError; null: the model takes no spec
  // May rely on a spec that was checked, an image of `least_side` to 65,536 pixels a side, 1 to 65,536
  // channels and at least one class.
  std::shared_ptr<Classifier> (*make)(const Spec& spec, const InputShape& input, const MakeNorm& make_norm);
};

Entry convnet_entry();
Entry inception_small_entry();
Entry resnet_small_entry();
Entry inception_v3_entry();
Entry resnet18_entry();
Entry resnet50_entry();

// The example input and the picture size of the small models: the built-in strokes, and thumbnails.
InputShape strokes_input();
constexpr int64_t kSmallPictures = 64;

// Throws UsageError unless `value` lies in [least, greatest]; `model` starts the message.
void check_range(const std::string& model, const char* what, int64_t value, int64_t least, int64_t greatest);
constexpr int64_t kMostPerSide = 65536;

}  // namespace renorm::models
