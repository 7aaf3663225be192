#include "bench/workers.h"

#include <renorm/nn/model.h>
#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "base/timing.h"
#include "train/run.h"
#include "train/threads.h"
#include "train/trainer.h"

namespace renorm::bench {
namespace {

constexpr int64_t kWarmUpSteps = 10;
constexpr int kRepeats = 31;
constexpr int64_t kSmall = int64_t{1} << 20;  // bytes
constexpr int64_t kLarge = int64_t{1} << 24;

double median_seconds_of_sum(dist::Group& group, int64_t bytes) {
  const torch::Tensor values = torch::zeros({bytes / 4});
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    const Stopwatch watch;
    group.sum(values);
    seconds.push_back(watch.seconds());
  }
  return median(seconds);
}

}  // namespace

WorkerTimes measure_steps(const WorkersOptions& options, dist::Group* group) {
  train::Config config;
  config.model = options.model;
  config.data = options.data;
  config.minibatch = options.minibatch;
  config.workers = options.workers;
  config.steps = kWarmUpSteps + options.steps;
  config.threads = options.threads;
  check(config);
  train::use_threads(options.threads);
  data::Dataset dataset = train::open_data(config, {});
  const train::Config whole = resolved(config, dataset.train->size());
  train::Trainer trainer(whole, std::move(dataset), group);
  for (int64_t i = 0; i < kWarmUpSteps; ++i) trainer.step();

  WorkerTimes times;
  std::vector<train::StepTimes> parts;
  const dist::Traffic before = group == nullptr ? dist::Traffic() : group->traffic();
  for (int64_t i = 0; i < options.steps; ++i) {
    const Stopwatch watch;
    const train::StepResult result = trainer.step();
    times.step_seconds.push_back(watch.seconds());
    parts.push_back(result.times);
  }
  for (const train::StepPart& part : train::kStepParts) {
    std::vector<double> seconds;
    for (const train::StepTimes& one : parts) seconds.push_back(one.*part.seconds);
    times.parts.*part.seconds = median(seconds);
  }
  for (const torch::Tensor& parameter : trainer.model().parameters()) {
    times.gradient_bytes += static_cast<int64_t>(parameter.nbytes());
  }
  times.statistics_bytes = static_cast<int64_t>(collected(trainer.model()).nbytes());
  if (group != nullptr) {
    times.bytes = (group->traffic().bytes - before.bytes) / options.steps;
    times.sums = (group->traffic().sums - before.sums) / options.steps;
  }
  return times;
}

Network measure_network(dist::Group& group) {
  median_seconds_of_sum(group, kLarge);  // connections grow their windows
  Network network;
  network.latency = median_seconds_of_sum(group, 8) / 2.0;
  const double small = median_seconds_of_sum(group, kSmall);
  const double large = median_seconds_of_sum(group, kLarge);
  network.bandwidth = static_cast<double>(kLarge - kSmall) / std::max(1e-9, large - small);
  return network;
}

Projection project(int64_t processes, const WorkerTimes& times, const Network& network) {
  const auto n = static_cast<double>(processes);
  Projection result;
  result.processes = processes;
  result.bound = 2.0 * (n - 1.0) / n * static_cast<double>(times.bytes) / network.bandwidth;
  result.sums = result.bound + static_cast<double>(times.sums) * 2.0 * (n - 1.0) * network.latency;
  const double compute = median(times.step_seconds) - times.parts.wait;
  result.step = compute + std::max(times.parts.wait, result.sums - times.parts.backward);
  result.efficiency = compute / result.step;
  return result;
}

}  // namespace renorm::bench
