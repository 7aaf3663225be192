// The data beside the weights of an exported model: how to rebuild it, its input, and the meaning of its
// outputs. As JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config.h"

namespace renorm::exporting {

// The files that hold a model and its card.
enum class ModelFormat { kSafetensors, kTorchScript };
// By the ending of the name. Throws UsageError that names both.
ModelFormat model_format(const std::string& file);

struct ModelCard {
  struct Norm {
    train::NormKind kind = train::NormKind::kRenorm;
    bool scale = false;
    double eps = 1e-3;
  };
  // Images are [n, channels, height, width], (byte / 255 - mean) / std.
  struct Input {
    int64_t channels = 0;
    int64_t height = 0;
    int64_t width = 0;
    std::vector<double> mean;  // one per channel
    std::vector<double> std;
    double centre = 1.0;  // fraction of an image's shorter side that is used
  };

  std::string renorm;   // the version that wrote it
  std::string model;    // "resnet50", "convnet:8/2,16"
  bool folded = false;  // convolutions with a bias instead of norms
  Norm norm;            // that the model was trained with
  std::string weights;  // averaged, raw
  int64_t step = 0;     // of training
  Input input;
  std::vector<std::string> classes;  // one per output
};

// All numbers must be finite. Bytes of class names that are not UTF-8 are replaced.
std::string to_json(const ModelCard& card);

// Throws DataError that starts with `file`: not JSON, an entry that is missing, unknown, repeated, of the
// wrong type or out of range, nested too deep, longer than 64 MB, or an unsupported format_version. The name
// of the model is checked when it is built.
ModelCard parse_model_card(const std::string& text, const std::string& file);

}  // namespace renorm::exporting
