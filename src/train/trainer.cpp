#include "train/trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/checksum.h"
#include "base/errors.h"
#include "base/random.h"
#include "base/text.h"
#include "base/timing.h"
#include "models/load_weights.h"
#include "models/metric_net.h"
#include "train/build_model.h"
#include "train/clip_records.h"
#include "train/evaluate.h"
#include "train/recall.h"
#include "train/tensor_file.h"

namespace renorm::train {
namespace {

namespace F = torch::nn::functional;

// Weight of the loss of an auxiliary head, as usual for Inception v3.
constexpr double kAuxiliaryWeight = 0.4;

data::StepShape shape_of(const Config& config) {
  return {config.workers, config.minibatch, config.microbatch, config.split_pairs, config.deal};
}

OptimizerOptions optimizer_of(const Config& config) {
  return {config.optimizer, config.momentum,      config.alpha,       config.beta1,
          config.beta2,     config.optimizer_eps, config.weight_decay};
}

void check_groups(const Config& config, const data::Description& data) {
  const int64_t group = config.sync_norm ? config.workers * config.minibatch : config.microbatch;
  if (can_normalize(config, data, group)) return;
  throw UsageError(fmt::format(
      "--{} must be at least 2 with --model {} and images of {}x{}, got 1: a layer has one value per channel "
      "and image, and one value alone cannot be normalized",
      config.minibatch == 1 ? "minibatch" : "microbatch", printable(config.model), data.height, data.width));
}

void check_processes(const Config& config, int processes) {
  if (config.workers % processes != 0) {
    throw UsageError(
        fmt::format("--workers must be a multiple of the {} processes, got {}", processes, config.workers));
  }
  if (config.norm == NormKind::kNative) {
    throw UsageError(
        "--norm native cannot be trained by several processes: each would have averages of its own; use "
        "--norm batchnorm");
  }
}

PassPlan plan_of(const Config& config, const data::Description& data, const dist::Group* group) {
  const int64_t share = config.workers * config.minibatch / (group == nullptr ? 1 : group->size());
  return {config.steps, group == nullptr ? 0 : group->rank() * share, share, examples_per_pass(config, data)};
}

}  // namespace

Trainer::Trainer(Config config, data::Dataset dataset, dist::Group* group)
    : Trainer(config, std::move(dataset), norm_of(config), group) {}

Trainer::Trainer(Config config, data::Dataset dataset, const models::MakeNorm& make_norm, dist::Group* group)
    : config_(std::move(config)),
      dataset_(std::move(dataset)),
      group_(group),
      plan_(plan_of(config_, dataset_.description, group)),
      stream_(*dataset_.train,
              {data::parse_sampler(config_.sampler), shape_of(config_), dataset_.train->labels(),
               static_cast<int64_t>(dataset_.description.classes.size()), config_.seed},
              plan_),
      model_(build_model(config_, dataset_.description, make_norm)),
      layers_(batch_renorm_layers(*model_)),
      parameters_(named_parameters(*model_)),
      optimizer_(make_optimizer(optimizer_of(config_), parameters_)),
      learning_rate_{config_.lr_schedule, config_.lr, config_.lr_final, config_.warmup, config_.steps} {
  check_groups(config_, dataset_.description);
  if (group_ != nullptr) {
    check_processes(config_, group_->size());
    gradient_sum_ = std::make_unique<GradientSum>(*group_, parameters_);
    step_sum_ = std::make_unique<StepSum>(*group_, layers_);
    if (config_.sync_norm) synchronize_layers();
  }
  if (config_.ema_decay > 0.0) average_ = std::make_unique<WeightAverage>(*model_, config_.ema_decay);
  model_->train();
}

void Trainer::synchronize_layers() {
  Processes processes;
  processes.rank = group_->rank();
  processes.count = group_->size();
  processes.all_reduce = [group = group_](torch::Tensor& values) { group->sum(values); };
  for (const NamedLayer& named : layers_) named.layer->options.processes(processes);
}

data::DrawnBatch Trainer::load_pass() {
  // Synchronized layers communicate, so a process that has no images must not leave the others alone in the
  // pass.
  if (group_ == nullptr || !config_.sync_norm) return stream_.next(steps_done_);
  std::optional<data::DrawnBatch> drawn;
  try {
    group_->together([&] { drawn = stream_.next(steps_done_); });
  } catch (...) {
    error_is_shared_ = true;
    throw;
  }
  return std::move(*drawn);
}

int64_t Trainer::run_pass(StepResult* result, bool is_last) {
  Stopwatch watch;
  const data::DrawnBatch drawn = load_pass();
  const auto& [draws, batch] = drawn;
  result->skipped_images += batch.skipped;
  result->times.load += watch.lap();

  model_->image_seeds.clear();
  for (const data::Draw& draw : draws) {
    model_->image_seeds.push_back(RandomStream(config_.seed, Purpose::kDropout, draw.ticket).bits());
  }
  const models::Logits logits = model_->logits(batch.images);
  const auto loss_of = [&labels = batch.labels, this](const torch::Tensor& values) {
    return F::cross_entropy(
        values, labels,
        F::CrossEntropyFuncOptions().reduction(torch::kSum).label_smoothing(config_.label_smoothing));
  };
  torch::Tensor loss = loss_of(logits.main);
  const auto examples = static_cast<double>(result->examples);
  result->loss += loss.item<double>() / examples;
  result->correct += logits.main.detach().argmax(1).eq(batch.labels).sum().item<int64_t>();
  if (logits.auxiliary.defined()) loss = loss + kAuxiliaryWeight * loss_of(logits.auxiliary);
  result->times.forward += watch.lap();

  // The gradient is the mean over all examples of the step, in all passes and processes.
  if (is_last && gradient_sum_) {
    step_sum_->start(*result, /*failed=*/false);
    gradient_sum_->expect_last_pass();
  }
  (loss / examples).backward();
  result->times.backward += watch.lap();
  return static_cast<int64_t>(draws.size());
}

void Trainer::check_gradients(double norm) const {
  if (std::isfinite(norm)) return;
  for (const NamedTensor& parameter : parameters_) {
    const torch::Tensor& gradient = parameter.tensor.grad();
    if (!gradient.defined() || first_non_finite(gradient) < 0) continue;
    throw NonFiniteError(
        fmt::format("step {}: the gradient of '{}' is not finite; a smaller --lr or --clip-gradient may help",
                    steps_done_ + 1, parameter.name));
  }
}

void Trainer::keep_buffers(int64_t examples) {
  buffers_before_.clear();
  if (!layers_.empty() || examples <= plan_.pass) return;
  for (const torch::Tensor& buffer : model_->buffers()) buffers_before_.push_back(buffer.clone());
}

void Trainer::abandon_step() {
  for (const NamedLayer& named : layers_) named.layer->discard();
  if (!buffers_before_.empty()) {
    const torch::NoGradGuard no_grad;
    const std::vector<torch::Tensor> buffers = model_->buffers();
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(buffers_before_[i]);
  }
  for (NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad() = torch::Tensor();
  stream_.restart(steps_done_);
}

void Trainer::run_passes(StepResult* result) {
  for (int64_t done = 0; done < plan_.share;) {
    if (done > 0 && group_ != nullptr) group_->check_members();
    done += run_pass(result, plan_.share - done <= plan_.pass);
  }
}

void Trainer::sum_over_processes(const std::exception_ptr& error, StepResult* result) {
  if (error && error_is_shared_) std::rethrow_exception(error);
  if (error && config_.sync_norm) {
    group_->leave();  // the others may wait for sums in the middle of a pass
    std::rethrow_exception(error);
  }
  Stopwatch watch;
  const torch::NoGradGuard no_grad;
  step_sum_->start(*result, error != nullptr);
  gradient_sum_->finish_backward(error != nullptr);
  const bool failed_early = step_sum_->finish(result);
  const bool failed_late = gradient_sum_->wait();
  if (failed_early || failed_late) group_->agree(error);
  result->times.wait += watch.lap();
}

void Trainer::begin_step(StepResult* result) {
  Stopwatch watch;
  result->examples = config_.workers * config_.minibatch;
  error_is_shared_ = false;
  if (gradient_sum_) {
    gradient_sum_->begin();
    step_sum_->begin();
  } else {
    for (NamedTensor& parameter : parameters_) {
      torch::Tensor& gradient = parameter.tensor.mutable_grad();
      if (gradient.defined()) gradient.zero_();
    }
  }
  for (const NamedLayer& named : layers_) named.layer->clear_clip_telemetry();
  if (!layers_.empty()) {
    const ClipLimits limits = layers_.front().layer->clip_limits();
    result->r_max = limits.r_max;
    result->d_max = limits.d_max;
  }
  result->times.other += watch.lap();
  keep_buffers(result->examples);
}

void Trainer::compute_gradients(StepResult* result) {
  std::exception_ptr error;
  try {
    run_passes(result);
  } catch (const NonFiniteStatistics& statistics) {
    // msg() has no context, which is the layer's own count of steps.
    error = std::make_exception_ptr(
        NonFiniteError(fmt::format("step {}: {}", steps_done_ + 1, statistics.msg())));
  } catch (const dist::WorkerLost&) {
    throw;
  } catch (...) {
    error = std::current_exception();
  }
  if (group_ != nullptr) {
    sum_over_processes(error, result);
  } else if (error) {
    std::rethrow_exception(error);
  }
  if (!std::isfinite(result->loss)) {
    throw NonFiniteError(
        fmt::format("step {}: the loss is not finite; a smaller --lr may help", steps_done_ + 1));
  }
}

void Trainer::update(StepResult* result) {
  Stopwatch watch;
  const torch::NoGradGuard no_grad;
  result->gradient_norm = gradient_norm(parameters_);
  check_gradients(result->gradient_norm);
  if (config_.clip_gradient > 0.0 && result->gradient_norm > config_.clip_gradient) {
    scale_gradients(parameters_, config_.clip_gradient / result->gradient_norm);
  }
  result->times.other += watch.lap();
  result->learning_rate = learning_rate_.at(steps_done_);
  optimizer_->step(result->learning_rate);
  result->times.optimizer += watch.lap();
  for (const NamedLayer& named : layers_) named.layer->commit();
  if (average_) average_->update(steps_done_);
  ++steps_done_;
  result->times.other += watch.lap();
}

StepResult Trainer::step(bool stop) try {
  StepResult result;
  result.stop = stop;
  begin_step(&result);
  compute_gradients(&result);
  update(&result);
  return result;
} catch (...) {
  abandon_step();
  throw;
}

std::vector<record::LayerClips> Trainer::clips() const { return clip_records(layers_, group_); }

void Trainer::check_agreement() {
  if (group_ == nullptr) return;
  std::string own;
  for (const auto& [name, bytes] : encode()) own += sha256(bytes);
  const std::vector<std::string> hashes = group_->gather(own);
  // Most of them are right.
  const auto count = [&](const std::string& one) { return std::count(hashes.begin(), hashes.end(), one); };
  const std::string& common =
      *std::max_element(hashes.begin(), hashes.end(),
                        [&](const std::string& a, const std::string& b) { return count(a) < count(b); });
  std::vector<std::string> others;
  for (int rank = 0; rank < group_->size(); ++rank) {
    if (hashes[rank] != common) others.push_back(group_->name_of(rank));
  }
  if (others.empty()) return;
  const std::string message = fmt::format(
      "step {}: the weights of {} differ from those of the other processes; nothing is saved; check memory "
      "and CPU of these machines, and whether they have the same libraries",
      steps_done_, fmt::join(others, ", "));
  group_->agree(std::make_exception_ptr(InternalError(message)));
}

int64_t Trainer::parameter_count() const {
  int64_t count = 0;
  for (const NamedTensor& parameter : parameters_) count += parameter.tensor.numel();
  return count;
}

// Recall is computed by every process.
Trainer::TestFigures Trainer::measure_test() {
  if (auto* net = dynamic_cast<models::MetricNet*>(model_.get())) {
    const Recall recall = recall_of(*net, *dataset_.test);
    return {recall.images, recall.skipped, {recall.at_1, std::nan("")}, recall.at_5};
  }
  const auto classes = static_cast<int64_t>(dataset_.description.classes.size());
  const Evaluation result = evaluate(*model_, *dataset_.test, classes, group_);
  return {result.images, result.skipped, {result.accuracy(), result.loss}, std::nullopt};
}

record::EvaluationRecord Trainer::evaluate_test() {
  Stopwatch watch;
  record::EvaluationRecord record;
  record.step = steps_done_;
  record.epoch = epochs_done();
  const TestFigures raw = measure_test();
  TestFigures averaged = raw;
  if (average_) {
    const WeightAverage::Applied applied(*average_);
    averaged = measure_test();
  }
  record.split = raw.recall_at_5 ? "unseen" : "test";
  record.images = raw.images;
  if (dataset_.test->is_slow()) record.skipped_images = raw.skipped;
  record.raw = raw.score;
  record.averaged = averaged.score;
  record.recall_at_5 = averaged.recall_at_5;
  record.seconds = watch.lap();
  return record;
}

std::map<std::string, std::string> Trainer::encode() {
  std::map<std::string, std::string> files;
  files[kModelFile] = encode_tensors(named_state(*model_));
  files[kOptimizerFile] = encode_tensors(optimizer_->state());
  if (average_) files[kAverageFile] = encode_tensors(average_->averages());
  return files;
}

void Trainer::restore(const std::map<std::string, std::string>& files, int64_t steps_done,
                      const std::string& folder) {
  restore_file(files, kModelFile, folder, named_state(*model_));
  restore_file(files, kOptimizerFile, folder, optimizer_->state());
  if (average_) restore_file(files, kAverageFile, folder, average_->averages());
  steps_done_ = steps_done;
  stream_.restart(steps_done_);
}

std::vector<std::string> Trainer::start_from(const std::map<std::string, torch::Tensor>& tensors,
                                             const std::string& file) {
  const models::LoadedWeights loaded = models::load_weights(*model_, tensors, file);
  if (average_) average_ = std::make_unique<WeightAverage>(*model_, config_.ema_decay);
  return loaded.left;
}

}  // namespace renorm::train
