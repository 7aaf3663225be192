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
#include "models/weight_limit.h"
#include "record/safetensors.h"
#include "train/build_model.h"
#include "train/tensor_file.h"

namespace renorm::exporting {
namespace {

constexpr const char* kCardKey = "renorm";
constexpr const char* kCardFile = "renorm.json";
constexpr int64_t kTracedImages = 2;  // the tracer might treat one as a constant

torch::Tensor example_images(const ModelCard& card) {
  return torch::zeros({kTracedImages, card.input.channels, card.input.height, card.input.width});
}

int64_t count_parameters(const models::Classifier& model) {
  int64_t count = 0;
  for (const train::NamedTensor& named : train::named_parameters(model)) count += named.tensor.numel();
  return count;
}

// The limits of r and d have no effect in evaluation.
train::NormKind evaluation_norm(train::NormKind kind) {
  switch (kind) {
    case train::NormKind::kBatchnorm:
    case train::NormKind::kRenorm:
      return train::NormKind::kBatchnorm;
    case train::NormKind::kNative:
    case train::NormKind::kGroupnorm:
      break;
  }
  return kind;
}

// The net that a card describes, with arbitrary weights.
std::shared_ptr<models::Classifier> blank_model(const ModelCard& card) {
  if (card.folded) return blank_folded(blueprint_of(card));
  train::Config config;
  config.norm = evaluation_norm(card.norm.kind);
  config.norm_scale = card.norm.scale;
  config.norm_eps = card.norm.eps;
  const Blueprint blueprint = blueprint_of(card);
  auto model = models::make_model(blueprint.model, blueprint.input, train::norm_of(config));
  model->eval();
  return model;
}

// For weights from a file of `bytes` bytes.
std::shared_ptr<models::Classifier> rebuilt(const ModelCard& card, size_t bytes, const std::string& file) {
  const models::FileWeightLimit limit(static_cast<int64_t>(bytes), file);
  try {
    auto model = blank_model(card);
    model->computation.memory_format = models::model_kind(card.model).memory_format;
    return model;
  } catch (const UsageError& error) {
    throw DataError(
        fmt::format("{}: the model of its model card cannot be built: {}", printable(file), error.what()));
  } catch (const c10::Error&) {
    throw DataError(fmt::format("{}: the model '{}' of its model card does not fit into memory",
                                printable(file), printable(card.model)));
  }
}

ModelCard card_from(const std::string& text, const std::string& file) {
  if (text.empty()) {
    throw DataError(
        fmt::format("{}: no model card; only files written by 'renorm export' have one", printable(file)));
  }
  return parse_model_card(text, fmt::format("{}: model card", file));
}

ReadyModel decode_safetensors(const std::string& bytes, const std::string& file) {
  record::Safetensors parsed = record::parse_safetensors(bytes, file);
  ReadyModel ready;
  ready.card = card_from(parsed.metadata[kCardKey], file);
  const auto model = rebuilt(ready.card, bytes.size(), file);
  train::restore_tensors(bytes, file, train::named_state(*model));
  ready.parameters = count_parameters(*model);
  ready.logits = [model](const torch::Tensor& images) { return model->forward(images); };
  return ready;
}

// A TorchScript program computes in the memory format of its input. This version need not have the model.
torch::MemoryFormat faster_format(const std::string& model) {
  for (const models::ModelKind& kind : models::model_kinds()) {
    if (kind.name == split_spec(model).first) return kind.memory_format;
  }
  return torch::MemoryFormat::Contiguous;
}

// An archive may contain any program.
torch::Tensor run_script(torch::jit::Module& script, const torch::Tensor& images, int64_t classes,
                         const std::string& file) {
  torch::Tensor logits;
  try {
    const torch::jit::IValue result = script.forward({images});
    if (result.isTensor()) logits = result.toTensor();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    throw DataError(
        fmt::format("{}: its program fails on images as described by its model card", printable(file)));
  }
  const bool fits = logits.defined() && logits.scalar_type() == torch::kFloat && logits.dim() == 2 &&
                    logits.size(0) == images.size(0) && logits.size(1) == classes;
  if (fits) return logits;
  throw DataError(fmt::format("{}: the output of its program is not one number for each of the {} classes",
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

void check_trusted(const std::string& file, ModelFormat format, bool trust_code) {
  if (format != ModelFormat::kTorchScript || trust_code) return;
  throw UsageError(fmt::format(
      "'{}' is TorchScript, a program that can read and change your files, and was not run; use a "
      ".safetensors file, which holds no code, or give --trust-code if you trust its author",
      printable(file)));
}

// A run with the chosen weights in place.
struct LoadedRun {
  train::OpenedRun run;
  std::optional<train::WeightAverage::Applied> applied;
};

ReadyModel model_of_run(const std::string& folder, const std::string& checkpoint, bool raw) {
  const auto loaded = std::make_shared<LoadedRun>();
  loaded->run = train::open_run(folder, checkpoint.empty() ? "last" : checkpoint);
  const bool averaged = loaded->run.average != nullptr && !raw;
  if (averaged) loaded->applied.emplace(*loaded->run.average);
  ReadyModel ready;
  const auto version = loaded->run.state.versions.find("renorm");
  ready.card = card_of(loaded->run, averaged ? "averaged" : "raw", /*folded=*/false,
                       version == loaded->run.state.versions.end() ? "" : version->second);
  ready.parameters = count_parameters(*loaded->run.model);
  ready.run = std::shared_ptr<train::OpenedRun>(loaded, &loaded->run);
  ready.logits = [loaded](const torch::Tensor& images) { return loaded->run.model->forward(images); };
  return ready;
}

}  // namespace

Blueprint blueprint_of(const ModelCard& card) {
  return {
      card.model,
      {card.input.channels, card.input.height, card.input.width, static_cast<int64_t>(card.classes.size())}};
}

ModelCard card_of(const train::OpenedRun& run, const std::string& weights, bool folded,
                  const std::string& version) {
  const train::Config& config = run.state.config;
  const data::Description& data = run.state.data;
  if (config.objective == train::Objective::kMetric) {
    throw UsageError(
        "a run with --objective metric has embeddings and no classes, so it cannot be exported or used by "
        "'renorm predict'; its weights are in the run's folder, in checkpoints/last/model.safetensors");
  }
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
  if (!card.folded) return train::encode_tensors(train::named_state(model), {{kCardKey, text}});
  return train::encode_tensors(train::named_state(*folded(model, blueprint)), {{kCardKey, text}});
}

ReadyModel decode_model(const std::string& bytes, const std::string& file, ModelFormat format) {
  return format == ModelFormat::kTorchScript ? decode_torchscript(bytes, file)
                                             : decode_safetensors(bytes, file);
}

ReadyModel open_model(const std::string& path, const OpenModelOptions& options) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return model_of_run(path, options.checkpoint, options.raw);
  if (!std::filesystem::exists(path, error)) {
    throw MissingInputError(fmt::format("no such file or folder: '{}'", printable(path)));
  }
  const ModelFormat format = model_format(path);
  if (!options.checkpoint.empty() || options.raw) {
    throw UsageError(
        fmt::format("--checkpoint and --raw need the folder of a run; the weights in the file '{}' "
                    "were chosen when it was exported",
                    printable(path)));
  }
  check_trusted(path, format, options.trust_code);
  return decode_model(read_file(path), path, format);
}

}  // namespace renorm::exporting
