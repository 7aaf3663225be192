#include "models/model.h"

#include <fmt/format.h>
#include <renorm/nn/model.h>

#include <algorithm>

#include "base/errors.h"
#include "base/text.h"
#include "models/kinds.h"

namespace renorm::models {
namespace {

constexpr int64_t kMaxClasses = 1000000;

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      mlp_entry(),          lstm_entry(),         convnet_entry(),  inception_small_entry(),
      resnet_small_entry(), inception_v3_entry(), resnet18_entry(), resnet50_entry()};
  return all;
}

const Entry& find_entry(const std::string& name) {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) {
    if (entry.kind.name == name) return entry;
    names.push_back(entry.kind.name);
  }
  throw UsageError(unknown_name("model", name, names));
}

void check_input(const Entry& entry, const InputShape& input) {
  const std::string& name = entry.kind.name;
  check_range(name, "a number of channels", input.channels, 1, kMaxPerSide);
  check_range(name, "a height", input.height, entry.min_side, kMaxPerSide);
  check_range(name, "a width", input.width, entry.min_side, kMaxPerSide);
  check_range(name, "a number of classes", input.classes, 1, kMaxClasses);
}

Spec spec_of(const std::string& text) {
  const size_t colon = text.find(':');
  return colon == std::string::npos ? Spec() : text.substr(colon + 1);
}

// The entry of a name, after checking its spec if there is one.
const Entry& checked_entry(const std::string& text) {
  const std::string name = text.substr(0, text.find(':'));
  const Entry& entry = find_entry(name);
  const Spec spec = spec_of(text);
  if (!spec) return entry;
  if (entry.check_spec == nullptr) {
    throw UsageError(fmt::format("the model {} has no options, got '{}'", entry.kind.name, printable(text)));
  }
  entry.check_spec(*spec);
  return entry;
}

// A single channel is in both orders at once, and LibTorch then decides by its stride: the new dimension gets
// the stride of `format`. No size is a constant, so that a trace works for any batch.
torch::Tensor in_order(const torch::Tensor& images, torch::MemoryFormat format) {
  const torch::Tensor ordered = images.contiguous(format);
  if (images.size(1) != 1) return ordered;
  const torch::Tensor plane = ordered.squeeze(1);
  if (format == torch::MemoryFormat::Contiguous) return plane.unsqueeze(1);
  return plane.unsqueeze(3).permute({0, 3, 1, 2});
}

}  // namespace

InputShape strokes_input() { return {1, 20, 20, 200}; }

void check_range(const std::string& model, const char* what, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return;
  throw UsageError(
      fmt::format("{} takes images with {} from {} to {}, got {}", model, what, min, max, value));
}

Logits Classifier::logits(const torch::Tensor& images) {
  return compute(in_order(images.to(computation.dtype), computation.memory_format));
}

std::shared_ptr<Classifier> make_model(const std::string& spec, const InputShape& input,
                                       const MakeNorm& make_norm) {
  const Entry& entry = checked_entry(spec);
  check_input(entry, input);
  const auto model = entry.make(spec_of(spec), input, make_norm);
  name_layers(*model);
  return model;
}

void check_model(const std::string& spec) { checked_entry(spec); }

const std::vector<ModelKind>& model_kinds() {
  static const std::vector<ModelKind> kinds = [] {
    std::vector<ModelKind> list;
    for (const Entry& entry : entries()) list.push_back(entry.kind);
    return list;
  }();
  return kinds;
}

const ModelKind& model_kind(const std::string& spec) {
  return find_entry(spec.substr(0, spec.find(':'))).kind;
}

}  // namespace renorm::models
