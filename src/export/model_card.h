// What travels with an exported model besides its weights: how to rebuild it, what to feed it, and what its
// outputs mean. JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/config.h"

namespace renorm::train {

// The files that hold a model and its card.
enum class ModelFormat { kSafetensors, kTorchScript };
// By the end of the name. Throws UsageError that names the two.
ModelFormat model_format(const std::string& file);

struct ModelCard {
  struct Norm {
    NormKind kind = NormKind::kRenorm;
    bool scale = false;
    double eps = 1e-3;
  };
  // Images are [n, channels, height, width], (byte / 255 - mean) / std.
  struct Input {
    int64_t channels = 0;
    int64_t height = 0;
    int64_t width = 0;
    std::vector<double> mean;  // a channel
    std::vector<double> std;
    double centre = 1.0;  // share of a picture's shorter side that is shown
  };

  std::string renorm;   // the version that wrote it
  std::string model;    // "resnet50", "convnet:8/2,16"
  bool folded = false;  // convolutions with a bias instead of norms
  Norm norm;            // that the model was trained with
  std::string weights;  // averaged, raw
  int64_t step = 0;     // of training
  Input input;
  std::vector<std::string> classes;  // one an output
};

// All numbers must be finite; names of classes may be any bytes, and those that are not UTF-8 are replaced.
std::string to_json(const ModelCard& card);

// Throws DataError that starts with `file`: not JSON, an entry missing, unknown, given twice, of the wrong
// type or out of range, nested too deep, longer than 64 MB, or a format_version that this program does not
// know. Whether there is such a model is seen when it is built.
ModelCard parse_model_card(const std::string& text, const std::string& file);

}  // namespace renorm::train
