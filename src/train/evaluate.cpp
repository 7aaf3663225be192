#include "train/evaluate.h"

#include <fmt/format.h>
#include <renorm/nn/model.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "data/batch_stream.h"

namespace renorm::train {
namespace {

// Evaluation mode while this object exists; then every module returns to its former mode.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& model)
      : model_(model), training_(model.is_training()), modules_(model.modules(/*include_self=*/false)) {
    for (const auto& module : modules_) modules_training_.push_back(module->is_training());
    model_.eval();
  }
  // train() also sets the mode of all submodules, so parents come first.
  ~EvaluationMode() {
    model_.train(training_);
    for (size_t i = 0; i < modules_.size(); ++i) modules_[i]->train(modules_training_[i]);
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  torch::nn::Module& model_;
  bool training_;
  std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  std::vector<bool> modules_training_;
};

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

struct Score {
  double loss;
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
  return {loss, prediction == label && !std::isnan(loss)};
}

// Sums up the results of a model over batches.
class Meter {
 public:
  Meter(models::Classifier& model, int64_t classes) : model_(model), classes_(classes) {
    result_.class_images.assign(static_cast<size_t>(classes), 0);
    result_.class_correct.assign(static_cast<size_t>(classes), 0);
  }

  // All batches of the stream.
  void add(data::BatchStream&& stream) {
    while (const auto drawn = stream.next()) add(drawn->batch);
  }

  // Throws DataError if none of the images could be read.
  Evaluation result() const {
    if (result_.images == 0 && result_.skipped > 0) {
      throw DataError(fmt::format("none of the {} images to evaluate on can be read", result_.skipped));
    }
    Evaluation result = result_;
    if (result.images > 0) result.loss = loss_sum_ / static_cast<double>(result.images);
    return result;
  }

 private:
  void add(const data::Batch& batch) {
    result_.skipped += batch.skipped;
    const int64_t count = batch.labels.size(0);
    if (count == 0) return;
    const torch::Tensor logits = model_.forward(batch.images);
    TORCH_CHECK(logits.dim() == 2 && logits.size(0) == count && logits.size(1) == classes_,
                "renorm::train::evaluate: logits must be [", count, ", ", classes_, "], got ",
                logits.sizes());
    count_batch(logits.to(torch::kDouble).contiguous(), batch.labels.contiguous());
  }

  void count_batch(const torch::Tensor& logits, const torch::Tensor& labels) {
    const auto* values = logits.data_ptr<double>();
    const auto* targets = labels.data_ptr<int64_t>();
    for (int64_t i = 0; i < logits.size(0); ++i) {
      const int64_t label = targets[i];
      TORCH_CHECK(label >= 0 && label < classes_, "renorm::train::evaluate: label must be in [0, ", classes_,
                  "), got ", label);
      const Score one = score(values + i * classes_, classes_, label);
      loss_sum_ += one.loss;
      result_.images += 1;
      result_.correct += one.correct ? 1 : 0;
      result_.class_images[static_cast<size_t>(label)] += 1;
      result_.class_correct[static_cast<size_t>(label)] += one.correct ? 1 : 0;
    }
  }

  models::Classifier& model_;
  int64_t classes_;
  double loss_sum_ = 0.0;
  Evaluation result_;
};

}  // namespace

int64_t evaluation_batch(const data::Split& split) {
  return std::clamp<int64_t>(kEvaluationPixels / std::max<int64_t>(1, split.pixels()), 1, kEvaluationBatch);
}

Evaluation evaluate(models::Classifier& model, const data::Split& split, int64_t classes) {
  const torch::NoGradGuard no_grad;
  const EvaluationMode mode(model);
  int64_t drawn = 0;
  const auto next_draws = [&, size = evaluation_batch(split)] {
    std::vector<data::Draw> draws;
    for (const int64_t last = std::min(split.size(), drawn + size); drawn < last; ++drawn) {
      draws.push_back({drawn, static_cast<uint64_t>(drawn)});
    }
    return draws;
  };
  Meter meter(model, classes);
  meter.add(data::BatchStream(split, next_draws));
  return meter.result();
}

Evaluation evaluate_with_batch_statistics(models::Classifier& model, const data::Split& split,
                                          int64_t classes, const data::SamplerSpec& sampler,
                                          int64_t minibatch, uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const int64_t size = sampler.minibatch() > 0 ? sampler.minibatch() : minibatch;
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
  Meter meter(model, classes);
  meter.add(data::BatchStream(split, next_draws));
  return meter.result();
}

}  // namespace renorm::train
