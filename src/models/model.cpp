#include "models/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "base/names.h"
#include "base/text.h"
#include "models/convnet_spec.h"
#include "models/kinds.h"

namespace renorm::models {
namespace {

constexpr int64_t kMostPerSide = 65536;
constexpr int64_t kSmallPictures = 64;
constexpr int64_t kMostClasses = 1000000;

struct Entry {
  ModelKind kind;
  int64_t least_side;                                                       // pixels of the smallest image
  std::shared_ptr<Classifier> (*make)(const InputShape&, const MakeNorm&);  // null: takes a spec
};

const std::vector<Entry>& entries() {
  static const InputShape strokes{1, 20, 20, 200};
  static const std::vector<Entry> all = {
      {{"convnet", "convnet[:SPEC]", "Convolutions in a row, from a list", convnet_syntax(), "convnet",
        strokes, kSmallPictures, torch::MemoryFormat::Contiguous},
       1,
       nullptr},
      {{"inception-small", "inception-small",
        "The five Inception v3 blocks with few filters, for images of about 20 to 40 pixels",
        "A stem of three 3x3 convolutions, the first of stride 2; one block each of the kinds A (35x35 in\n"
        "Inception v3), B (reduction), C (17x17), D (reduction) and E (8x8); mean pooling; a linear "
        "classifier.\n"
        "Reductions are padded, so that small images have something left.\n",
        "inception-small", strokes, kSmallPictures, torch::MemoryFormat::Contiguous},
       8,
       make_inception_small},
      {{"resnet-small", "resnet-small", "Six residual blocks of 16, 32 and 64 channels",
        "A 3x3 convolution; three stages of two basic residual blocks with 16, 32 and 64 channels, the "
        "second\n"
        "and third stage of stride 2; mean pooling; a linear classifier. The second norm of a block has no\n"
        "ReLU; where the shape changes, the shortcut is a 1x1 convolution and a norm.\n",
        "resnet-small", strokes, kSmallPictures, torch::MemoryFormat::Contiguous},
       8,
       make_resnet_small},
  };
  return all;
}

const Entry& find_entry(const std::string& name) {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) {
    if (entry.kind.name == name) return entry;
    names.push_back(entry.kind.name);
  }
  throw UsageError(fmt::format("there is no model '{}'{}", printable(name), name_hint(name, names)));
}

void check_range(const std::string& model, const char* what, int64_t value, int64_t least, int64_t greatest) {
  if (value >= least && value <= greatest) return;
  throw UsageError(
      fmt::format("{} takes images with {} from {} to {}, got {}", model, what, least, greatest, value));
}

void check_input(const Entry& entry, const InputShape& input) {
  const std::string& name = entry.kind.name;
  check_range(name, "a number of channels", input.channels, 1, kMostPerSide);
  check_range(name, "a height", input.height, entry.least_side, kMostPerSide);
  check_range(name, "a width", input.width, entry.least_side, kMostPerSide);
  check_range(name, "a number of classes", input.classes, 1, kMostClasses);
}

}  // namespace

Logits Classifier::logits(const torch::Tensor& images) {
  return compute(images.to(images.options().dtype(computation.dtype), /*non_blocking=*/false, /*copy=*/false,
                           computation.memory_format));
}

std::shared_ptr<Classifier> make_model(const std::string& spec, const InputShape& input,
                                       const MakeNorm& make_norm) {
  const size_t colon = spec.find(':');
  const std::string name = spec.substr(0, colon);
  const Entry& entry = find_entry(name);
  check_input(entry, input);
  std::shared_ptr<Classifier> model;
  if (entry.make == nullptr) {
    model = make_convnet(colon == std::string::npos ? convnet_recipe() : spec.substr(colon + 1), input,
                         make_norm);
  } else if (colon == std::string::npos) {
    model = entry.make(input, make_norm);
  } else {
    throw UsageError(
        fmt::format("the model {} takes nothing after its name, got '{}'", entry.kind.name, printable(spec)));
  }
  name_layers(*model);
  return model;
}

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
