#include "export/ready_model.h"

#include <fmt/format.h>
#include <torch/utils.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "export/torchscript.h"
#include "record/safetensors.h"
#include "train/build_model.h"
#include "train/tensor_file.h"

namespace renorm::train {
namespace {

constexpr const char* kCardKey = "renorm";
constexpr const char* kCardFile = "renorm.json";
constexpr int64_t kTracedImages = 2;  // one might be taken for a constant

torch::Tensor example_images(const ModelCard& card) {
  return torch::zeros({kTracedImages, card.input.channels, card.input.height, card.input.width});
}

int64_t count_parameters(const models::Classifier& model) {
  int64_t count = 0;
  for (const NamedTensor& named : named_parameters(model)) count += named.tensor.numel();
  return count;
}

// Limits of r and d mean nothing in evaluation.
NormKind evaluation_norm(NormKind kind) {
  switch (kind) {
    case NormKind::kBatchnorm:
    case NormKind::kRenorm:
      return NormKind::kBatchnorm;
    case NormKind::kNative:
      break;
  }
  return kind;
}

// The net that a card describes, with weights of no meaning.
std::shared_ptr<models::Classifier> blank_model(const ModelCard& card) {
  if (card.folded) return blank_folded(blueprint_of(card));
  Config config;
  config.norm = evaluation_norm(card.norm.kind);
  config.norm_scale = card.norm.scale;
  config.norm_eps = card.norm.eps;
  const Blueprint blueprint = blueprint_of(card);
  auto model = models::make_model(blueprint.model, blueprint.input, norm_of(config));
  model->eval();
  return model;
}

std::shared_ptr<models::Classifier> rebuilt(const ModelCard& card, const std::string& file) {
  try {
    auto model = blank_model(card);
    model->computation.memory_format = models::model_kind(card.model).memory_format;
    return model;
  } catch (const UsageError& error) {
    throw DataError(
        fmt::format("{}: its model card asks for what cannot be built: {}", printable(file), error.what()));
  } catch (const c10::Error&) {
    throw DataError(fmt::format("{}: the model '{}' of its model card does not fit into memory",
                                printable(file), printable(card.model)));
  }
}

ModelCard card_from(const std::string& text, const std::string& file) {
  if (text.empty()) {
    throw DataError(fmt::format(
        "{}: there is no model card in it; 'renorm export' writes files that have one", printable(file)));
  }
  return parse_model_card(text, fmt::format("{}: model card", file));
}

ReadyModel decode_safetensors(const std::string& bytes, const std::string& file) {
  record::Safetensors parsed = record::parse_safetensors(bytes, file);
  ReadyModel ready;
  ready.card = card_from(parsed.metadata[kCardKey], file);
  const auto model = rebuilt(ready.card, file);
  restore_tensors(bytes, file, named_state(*model));
  ready.parameters = count_parameters(*model);
  ready.logits = [model](const torch::Tensor& images) { return model->forward(images); };
  return ready;
}

// A program computes in the order of its input. The model need not be one that this version knows.
torch::MemoryFormat faster_format(const std::string& model) {
  for (const models::ModelKind& kind : models::model_kinds()) {
    if (kind.name == split_spec(model).first) return kind.memory_format;
  }
  return torch::MemoryFormat::Contiguous;
}

// An archive may hold any program.
torch::Tensor run_script(torch::jit::Module& script, const torch::Tensor& images, int64_t classes,
                         const std::string& file) {
  torch::Tensor logits;
  try {
    const torch::jit::IValue result = script.forward({images});
    if (result.isTensor()) logits = result.toTensor();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    throw DataError(fmt::format("{}: its program cannot be run on the images that its model card describes",
                                printable(file)));
  }
  const bool fits = logits.defined() && logits.scalar_type() == torch::kFloat && logits.dim() == 2 &&
                    logits.size(0) == images.size(0) && logits.size(1) == classes;
  if (fits) return logits;
  throw DataError(fmt::format("{}: its program does not give one number for each of the {} classes",
                              printable(file), classes));
}

ReadyModel decode_torchscript(const std::string& bytes, const std::string& file) {
  const TorchScript archive = read_torchscript(bytes, file, kCardFile);
  ReadyModel ready;
  ready.card = card_from(archive.extra, file);
  for (const torch::Tensor& parameter : archive.module.parameters()) ready.parameters += parameter.numel();
  const auto classes = static_cast<int64_t>(ready.card.classes.size());
  ready.logits = [script = archive.module, classes, file,
                  format = faster_format(ready.card.model)](const torch::Tensor& images) mutable {
    return run_script(script, images.contiguous(format), classes, file);
  };
  return ready;
}

// A run in memory with the weights that were asked for in place.
struct HeldRun {
  OpenedRun run;
  std::optional<WeightAverage::Applied> applied;
};

ReadyModel model_of_run(const std::string& folder, const std::string& checkpoint, bool raw) {
  const auto held = std::make_shared<HeldRun>();
  held->run = open_run(folder, checkpoint.empty() ? "last" : checkpoint);
  const bool averaged = held->run.average != nullptr && !raw;
  if (averaged) held->applied.emplace(*held->run.average);
  ReadyModel ready;
  const auto version = held->run.state.versions.find("renorm");
  ready.card = card_of(held->run, averaged ? "averaged" : "raw", /*folded=*/false,
                       version == held->run.state.versions.end() ? "" : version->second);
  ready.parameters = count_parameters(*held->run.model);
  ready.threads = held->run.state.config.threads;
  ready.logits = [held](const torch::Tensor& images) { return held->run.model->forward(images); };
  return ready;
}

}  // namespace

Blueprint blueprint_of(const ModelCard& card) {
  return {
      card.model,
      {card.input.channels, card.input.height, card.input.width, static_cast<int64_t>(card.classes.size())}};
}

ModelCard card_of(const OpenedRun& run, const std::string& weights, bool folded, const std::string& version) {
  const Config& config = run.state.config;
  const data::Description& data = run.state.data;
  ModelCard card;
  card.renorm = version;
  card.model = config.model;
  card.folded = folded;
  card.norm = {config.norm, config.norm_scale, config.norm_eps};
  card.weights = weights;
  card.step = run.state.step;
  card.input = {data.channels, data.height, data.width, data.mean, data.std, data.centre};
  card.classes = data.classes;
  return card;
}

std::string encode_model(const models::Classifier& model, const ModelCard& card, ModelFormat format) {
  const Blueprint blueprint = blueprint_of(card);
  const std::string text = to_json(card);
  if (format == ModelFormat::kTorchScript) {
    const auto net = card.folded ? folded(model, blueprint) : with_plain_norms(model, blueprint);
    return to_torchscript(*net, example_images(card), {{kCardFile, text}});
  }
  if (!card.folded) return encode_tensors(named_state(model), {{kCardKey, text}});
  return encode_tensors(named_state(*folded(model, blueprint)), {{kCardKey, text}});
}

ReadyModel decode_model(const std::string& bytes, const std::string& file, ModelFormat format) {
  return format == ModelFormat::kTorchScript ? decode_torchscript(bytes, file)
                                             : decode_safetensors(bytes, file);
}

ReadyModel open_model(const std::string& path, const std::string& checkpoint, bool raw) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return model_of_run(path, checkpoint, raw);
  if (!std::filesystem::exists(path, error)) {
    throw MissingInputError(fmt::format("there is no file or folder '{}'", printable(path)));
  }
  const ModelFormat format = model_format(path);
  if (!checkpoint.empty() || raw) {
    throw UsageError(
        fmt::format("a checkpoint and raw weights can be chosen in the folder of a run; the file "
                    "'{}' holds what was chosen when it was exported",
                    printable(path)));
  }
  return decode_model(read_file(path), path, format);
}

}  // namespace renorm::train
