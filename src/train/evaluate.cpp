#include "train/evaluate.h"

#include <fmt/format.h>
#include <renorm/nn/model.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "data/batch_stream.h"

namespace renorm::train {
namespace {

// While this object exists, all norms of a model in evaluation mode use the statistics of their input.
class BatchStatistics {
 public:
  explicit BatchStatistics(torch::nn::Module& model) {
    for (const NamedLayer& named : batch_renorm_layers(model)) {
      BatchRenormLayer* layer = named.layer;
      undo_.emplace_back(
          [layer, before = layer->uses_batch_statistics()] { layer->use_batch_statistics(before); });
      layer->use_batch_statistics(true);
    }
    for (const auto& module : model.modules(/*include_self=*/false)) {
      hide_averages<torch::nn::BatchNorm1dImpl>(*module);
      hide_averages<torch::nn::BatchNorm2dImpl>(*module);
      hide_averages<torch::nn::BatchNorm3dImpl>(*module);
    }
  }
  // In reverse, because a module that is registered twice was hidden twice.
  ~BatchStatistics() {
    for (auto undo = undo_.rbegin(); undo != undo_.rend(); ++undo) (*undo)();
  }
  BatchStatistics(const BatchStatistics&) = delete;
  BatchStatistics& operator=(const BatchStatistics&) = delete;

 private:
  // LibTorch's own layer in training mode would change its averages, even with momentum 0 if the batch is not
  // finite. Without averages it normalizes with the batch; they stay registered as buffers of the module.
  template <typename Norm>
  void hide_averages(torch::nn::Module& module) {
    auto* norm = dynamic_cast<Norm*>(&module);
    if (norm == nullptr) return;
    undo_.emplace_back([norm, mean = norm->running_mean, var = norm->running_var,
                        tracks = norm->options.track_running_stats()] {
      norm->running_mean = mean;
      norm->running_var = var;
      norm->options.track_running_stats(tracks);
    });
    norm->running_mean = torch::Tensor();
    norm->running_var = torch::Tensor();
    norm->options.track_running_stats(false);
  }

  std::vector<std::function<void()>> undo_;
};

// Of one image. Plain data.
struct Score {
  double loss;
  int64_t label;
  bool correct;
};

Score score(const double* logits, int64_t classes, int64_t label) {
  double max = -std::numeric_limits<double>::infinity();
  int64_t prediction = -1;
  for (int64_t k = 0; k < classes; ++k) {
    if (logits[k] > max) {
      max = logits[k];
      prediction = k;
    }
  }
  double sum = 0.0;
  for (int64_t k = 0; k < classes; ++k) sum += std::exp(logits[k] - max);
  const double loss = std::log(sum) + max - logits[label];
  return {loss, label, prediction == label && !std::isnan(loss)};
}

// The scores of a batch, and how many of its images could not be read.
struct BatchScores {
  int64_t skipped = 0;
  std::vector<Score> scores;
};

BatchScores scores_of(models::Classifier& model, const data::Batch& batch, int64_t classes) {
  BatchScores result;
  result.skipped = batch.skipped;
  const int64_t count = batch.labels.size(0);
  if (count == 0) return result;
  torch::Tensor logits = model.forward(batch.images);
  TORCH_CHECK(logits.dim() == 2 && logits.size(0) == count && logits.size(1) == classes,
              "renorm::train::evaluate: logits must be [", count, ", ", classes, "], got ", logits.sizes());
  logits = logits.to(torch::kDouble).contiguous();
  const torch::Tensor labels = batch.labels.contiguous();
  const auto* values = logits.data_ptr<double>();
  const auto* targets = labels.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    TORCH_CHECK(targets[i] >= 0 && targets[i] < classes, "renorm::train::evaluate: label must be in [0, ",
                classes, "), got ", targets[i]);
    result.scores.push_back(score(values + i * classes, classes, targets[i]));
  }
  return result;
}

// In the order of the batches, so that a sum has the same bits whoever computed its terms. Throws DataError
// if none of the images could be read.
Evaluation summed(const std::vector<BatchScores>& batches, int64_t classes) {
  Evaluation result;
  result.class_images.assign(static_cast<size_t>(classes), 0);
  result.class_correct.assign(static_cast<size_t>(classes), 0);
  double loss = 0.0;
  for (const BatchScores& batch : batches) {
    result.skipped += batch.skipped;
    for (const Score& one : batch.scores) {
      loss += one.loss;
      result.images += 1;
      result.correct += one.correct ? 1 : 0;
      result.class_images[static_cast<size_t>(one.label)] += 1;
      result.class_correct[static_cast<size_t>(one.label)] += one.correct ? 1 : 0;
    }
  }
  if (result.images == 0 && result.skipped > 0) {
    throw DataError(fmt::format("none of the {} images to evaluate on can be read", result.skipped));
  }
  if (result.images > 0) result.loss = loss / static_cast<double>(result.images);
  return result;
}

std::vector<BatchScores> all_scores(models::Classifier& model, const data::Split& split, int64_t classes,
                                    const data::NextDraws& next_draws) {
  std::vector<BatchScores> batches;
  data::BatchStream stream(split, next_draws);
  while (const auto drawn = stream.next()) batches.push_back(scores_of(model, drawn->batch, classes));
  return batches;
}

void append(int64_t value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string encoded(const std::vector<BatchScores>& batches) {
  std::string bytes;
  for (const BatchScores& batch : batches) {
    append(batch.skipped, &bytes);
    append(static_cast<int64_t>(batch.scores.size()), &bytes);
    bytes.append(reinterpret_cast<const char*>(batch.scores.data()), batch.scores.size() * sizeof(Score));
  }
  return bytes;
}

// `bytes` come from another process of the same program.
std::vector<BatchScores> decoded(const std::string& bytes) {
  std::vector<BatchScores> batches;
  for (size_t place = 0; place < bytes.size();) {
    int64_t header[2];
    std::memcpy(header, bytes.data() + place, sizeof header);
    place += sizeof header;
    BatchScores batch;
    batch.skipped = header[0];
    batch.scores.resize(static_cast<size_t>(header[1]));
    std::memcpy(batch.scores.data(), bytes.data() + place, batch.scores.size() * sizeof(Score));
    place += batch.scores.size() * sizeof(Score);
    batches.push_back(std::move(batch));
  }
  return batches;
}

// Process r has batches r, r + size, r + 2 size, ...
std::vector<BatchScores> gathered(const std::vector<BatchScores>& own, dist::Group& group) {
  std::vector<std::vector<BatchScores>> parts;
  for (const std::string& bytes : group.gather(encoded(own))) parts.push_back(decoded(bytes));
  std::vector<BatchScores> all;
  for (size_t i = 0; i < parts.front().size(); ++i) {
    for (const auto& part : parts) {
      if (i < part.size()) all.push_back(part[i]);
    }
  }
  return all;
}

}  // namespace

EvaluationMode::EvaluationMode(torch::nn::Module& model)
    : model_(model), training_(model.is_training()), modules_(model.modules(/*include_self=*/false)) {
  for (const auto& module : modules_) modules_training_.push_back(module->is_training());
  model_.eval();
}

// train() also sets the mode of all submodules, so parents come first.
EvaluationMode::~EvaluationMode() {
  model_.train(training_);
  for (size_t i = 0; i < modules_.size(); ++i) modules_[i]->train(modules_training_[i]);
}

int64_t evaluation_batch(const data::Split& split) {
  return std::clamp<int64_t>(kEvaluationPixels / std::max<int64_t>(1, split.pixels()), 1, kEvaluationBatch);
}

torch::Tensor logits_of(models::Classifier& model, const torch::Tensor& images, Statistics statistics) {
  const torch::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  std::optional<BatchStatistics> of_batch;
  if (statistics == Statistics::kBatch) of_batch.emplace(model);
  return model.forward(images);
}

Evaluation evaluate(models::Classifier& model, const data::Split& split, int64_t classes,
                    dist::Group* group) {
  const torch::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  const int64_t size = evaluation_batch(split);
  const int64_t processes = group == nullptr ? 1 : group->size();
  int64_t first = group == nullptr ? 0 : group->rank() * size;
  const auto next_draws = [&] {
    if (group != nullptr && group->is_lost()) throw Interrupted("another process was lost");
    std::vector<data::Draw> draws;
    for (int64_t i = first; i < std::min(split.size(), first + size); ++i) {
      draws.push_back({i, static_cast<uint64_t>(i)});
    }
    first += processes * size;
    return draws;
  };
  std::vector<BatchScores> batches;
  const auto score_all = [&] { batches = all_scores(model, split, classes, next_draws); };
  if (group == nullptr) {
    score_all();
  } else {
    group->together(score_all);
    batches = gathered(batches, *group);
  }
  return summed(batches, classes);
}

int64_t statistics_minibatch(const data::Split& split, const data::SamplerSpec& sampler, int64_t minibatch) {
  if (sampler.minibatch() > 0) return sampler.minibatch();
  return std::min(minibatch, std::max<int64_t>(1, split.size()));
}

Evaluation evaluate_with_batch_statistics(models::Classifier& model, const data::Split& split,
                                          int64_t classes, const data::SamplerSpec& sampler,
                                          int64_t minibatch, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const int64_t size = statistics_minibatch(split, sampler, minibatch);
  data::StepShape shape;
  shape.workers = 1;
  shape.minibatch = size;
  shape.microbatch = size;
  data::Sampler draws(sampler, shape, split.labels(), classes, seed);
  const EvaluationMode mode(model);
  const BatchStatistics statistics(model);
  const int64_t minibatches = (split.size() + size - 1) / size;
  const auto next_draws = [&, drawn = int64_t{0}]() mutable {
    std::vector<data::Draw> result;
    if (drawn == minibatches) return result;
    auto ticket = static_cast<uint64_t>(drawn * size);
    for (const int64_t index : draws.step(drawn)) result.push_back({index, ticket++});
    ++drawn;
    return result;
  };
  return summed(all_scores(model, split, classes, next_draws), classes);
}

}  // namespace renorm::train
