// Models ready for prediction: written to a file, and read from a file or a run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "export/model_card.h"
#include "export/portable_model.h"
#include "train/opened_run.h"

namespace renorm::exporting {

Blueprint blueprint_of(const ModelCard& card);
// For the model of a run, which has the averaged weights in place if `weights` is "averaged". `version` is
// that of renorm.
ModelCard card_of(const train::OpenedRun& run, const std::string& weights, bool folded,
                  const std::string& version);

// The bytes of a file with the model and its card.
// - Safetensors: the tensors of `model` by name, folded if card.folded; the card as metadata "renorm".
// - TorchScript: the net with plain norms or folded (portable_model.h); the card as extra file renorm.json.
std::string encode_model(const models::Classifier& model, const ModelCard& card, ModelFormat format);

struct ReadyModel {
  ModelCard card;
  int64_t parameters = 0;
  std::shared_ptr<train::OpenedRun> run;  // that the model comes from, with its weights; null: from a file
  // Float images [n, channels, height, width] -> logits [n, classes]. Throws DataError.
  std::function<torch::Tensor(const torch::Tensor&)> logits;
};
// Reads the bytes of encode_model. `file` is for messages. Throws DataError that starts with it. TorchScript
// can run any code when it is read: the bytes must be trusted.
ReadyModel decode_model(const std::string& bytes, const std::string& file, ModelFormat format);

struct OpenModelOptions {
  std::string checkpoint;   // of a run, "" = last; must be "" for a file
  bool raw = false;         // of a run: not the averaged weights; must be false for a file
  bool trust_code = false;  // whether a TorchScript file, which is a program, may be run
};
// From an exported file or the folder of a run. Throws UsageError, also for a TorchScript file that is not
// trusted, MissingInputError, DataError.
ReadyModel open_model(const std::string& path, const OpenModelOptions& options);

}  // namespace renorm::exporting
