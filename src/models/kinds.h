// The kinds of models: internal to make_model.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "models/model.h"

namespace renorm::models {

// The part of "name:spec" after the colon; nothing if there is no colon.
using Spec = std::optional<std::string>;

struct Entry {
  ModelKind kind;
  int64_t min_side;                             // pixels of the smallest image
  void (*check_spec)(const std::string& spec);  // throws UsageError; null: the model takes no spec
  // The spec has been checked; images have `min_side` to 65,536 pixels per side and 1 to 65,536 channels, and
  // there is at least one class.
  std::shared_ptr<Classifier> (*make)(const Spec& spec, const InputShape& input, const MakeNorm& make_norm);
};

Entry convnet_entry();
Entry mlp_entry();
Entry lstm_entry();
Entry inception_small_entry();
Entry resnet_small_entry();
Entry inception_v3_entry();
Entry resnet18_entry();
Entry resnet50_entry();

// The example input and the image size of the small models: the built-in strokes, and thumbnails.
InputShape strokes_input();
constexpr int64_t kSmallImages = 64;

// Throws UsageError unless `value` is in [min, max]; `model` starts the message.
void check_range(const std::string& model, const char* what, int64_t value, int64_t min, int64_t max);
constexpr int64_t kMaxPerSide = 65536;

}  // namespace renorm::models
