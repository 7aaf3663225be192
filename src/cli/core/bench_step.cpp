// renorm bench step: a training step with our layer and with LibTorch's, and what the trainer itself costs.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "base/errors.h"
#include "base/files.h"
#include "cli/core/bench/machine.h"
#include "cli/core/commands.h"
#include "cli/progress.h"
#include "train/settings.h"
#include "train/trainer.h"

namespace renorm::cli {
namespace {

using Json = nlohmann::ordered_json;

// The order is that of a round; all take turns.
constexpr const char* kNorms[] = {"renorm", "batchnorm", "native"};
constexpr int64_t kWarmUpSteps = 3;
constexpr int64_t kMemorySteps = 3;
constexpr double kMegabyte = 1e6;

struct Measured {
  std::string norm;
  std::vector<train::StepTimes> steps;
  double peak_memory = -1.0;  // bytes beyond what the process held before; -1: this system does not say
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double median_of(const Measured& measured, double (*part)(const train::StepTimes&)) {
  std::vector<double> values;
  for (const train::StepTimes& times : measured.steps) values.push_back(part(times));
  return median(values);
}

double whole(const train::StepTimes& times) { return times.all(); }
double overhead(const train::StepTimes& times) { return times.load + times.other; }

train::Config config_for(const BenchStepOptions& options, const std::string& norm) {
  train::Config config;
  config.data = options.data;
  config.model = options.model;
  config.workers = options.workers;
  config.minibatch = options.minibatch;
  config.norm = norm;
  // Limits as at the end of the paper's schedule, so that r and d are at work.
  if (norm == "renorm") config.clip = "3,5";
  config.threads = options.threads;
  config.steps = kWarmUpSteps + options.steps;
  return config;
}

std::unique_ptr<train::Trainer> trainer_for(const BenchStepOptions& options, const data::Dataset& dataset,
                                            const std::string& norm) {
  const train::Config config = config_for(options, norm);
  train::check(config);
  return std::make_unique<train::Trainer>(train::resolved(config, dataset.train->size()), dataset);
}

// A field of /proc/self/status in bytes; -1 if there is none.
double status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string name;
  while (status >> name) {
    double kilobytes = 0.0;
    if (name == field + ":" && status >> kilobytes) return kilobytes * 1024.0;
    status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return -1.0;
}

// What a trainer of its own, alone in the process, adds to the resident memory at most.
double peak_memory_of(const BenchStepOptions& options, const data::Dataset& dataset,
                      const std::string& norm) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak starts anew
  const double before = status_bytes("VmRSS");
  const auto trainer = trainer_for(options, dataset, norm);
  for (int64_t i = 0; i < kMemorySteps; ++i) trainer->step();
  const double peak = status_bytes("VmHWM");
  return before < 0.0 || peak < 0.0 ? -1.0 : peak - before;
}

std::vector<Measured> measure(const BenchStepOptions& options, const data::Dataset& dataset,
                              Progress& progress) {
  std::vector<Measured> all;
  for (const char* norm : kNorms) all.push_back({norm, {}, -1.0});
  progress.show("memory");
  peak_memory_of(options, dataset, kNorms[0]);  // what is allocated once counts for nobody
  for (Measured& measured : all) measured.peak_memory = peak_memory_of(options, dataset, measured.norm);

  std::vector<std::unique_ptr<train::Trainer>> trainers;
  trainers.reserve(all.size());
  for (const Measured& measured : all) trainers.push_back(trainer_for(options, dataset, measured.norm));
  for (int64_t i = 0; i < kWarmUpSteps + options.steps; ++i) {
    progress.show(fmt::format("step {} of {}", i + 1, kWarmUpSteps + options.steps));
    for (size_t k = 0; k < all.size(); ++k) {
      const train::StepResult result = trainers[k]->step();
      if (i >= kWarmUpSteps) all[k].steps.push_back(result.times);
    }
  }
  return all;
}

// The median over the rounds of our step against native's in the same round.
double native_ratio(const Measured& measured, const Measured& native) {
  std::vector<double> ratios;
  for (size_t i = 0; i < measured.steps.size(); ++i) {
    ratios.push_back(native.steps[i].all() / measured.steps[i].all());
  }
  return median(ratios);
}

double overhead_percent(const Measured& measured) {
  std::vector<double> shares;
  for (const train::StepTimes& times : measured.steps)
    shares.push_back(100.0 * overhead(times) / times.all());
  return median(shares);
}

Json to_json(const BenchStepOptions& options, const train::Trainer& trainer,
             const std::vector<Measured>& all) {
  const bench::Machine machine = bench::this_machine();
  Json json = {{"machine",
                {{"cpu", machine.cpu},
                 {"cpus", machine.cpus},
                 {"simd_target", machine.simd_target},
                 {"libtorch", machine.libtorch}}},
               {"model", options.model},
               {"parameters", trainer.parameter_count()},
               {"data", options.data},
               {"workers", options.workers},
               {"minibatch", options.minibatch},
               {"threads", options.threads},
               {"steps", options.steps}};
  for (const Measured& measured : all) {
    Json entry = {
        {"step_ms", 1e3 * median_of(measured, whole)},
        {"load_ms", 1e3 * median_of(measured, [](const train::StepTimes& t) { return t.load; })},
        {"forward_ms", 1e3 * median_of(measured, [](const train::StepTimes& t) { return t.forward; })},
        {"backward_ms", 1e3 * median_of(measured, [](const train::StepTimes& t) { return t.backward; })},
        {"optimizer_ms", 1e3 * median_of(measured, [](const train::StepTimes& t) { return t.optimizer; })},
        {"other_ms", 1e3 * median_of(measured, [](const train::StepTimes& t) { return t.other; })},
        {"overhead_percent", overhead_percent(measured)},
        {"native_over_this", native_ratio(measured, all.back())}};
    entry["peak_memory_mb"] = measured.peak_memory < 0.0 ? Json() : Json(measured.peak_memory / kMegabyte);
    json["norms"][measured.norm] = entry;
  }
  return json;
}

void print_table(const BenchStepOptions& options, const train::Trainer& trainer, const Json& json) {
  fmt::print("{}, {} parameters, {}; {} x {} images a step, {} thread{}, {} steps of each in turn\n\n",
             options.model, trainer.parameter_count(), options.data, options.workers, options.minibatch,
             options.threads, options.threads == 1 ? "" : "s", options.steps);
  fmt::print("{:<10}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>14}{:>12}\n", "norm", "step ms", "forward",
             "backward", "optimizer", "load", "other", "native/this", "memory MB");
  for (const auto& [norm, entry] : json["norms"].items()) {
    const auto number = [&entry = entry](const char* key) { return entry[key].get<double>(); };
    fmt::print("{:<10}{:>9.1f}{:>10.1f}{:>10.1f}{:>10.2f}{:>10.2f}{:>10.2f}{:>14.3f}", norm,
               number("step_ms"), number("forward_ms"), number("backward_ms"), number("optimizer_ms"),
               number("load_ms"), number("other_ms"), number("native_over_this"));
    fmt::print("{:>12}\n",
               entry["peak_memory_mb"].is_null() ? "-" : fmt::format("{:.1f}", number("peak_memory_mb")));
  }
  fmt::print(
      "\nTrainer overhead with renorm (all but forward, backward and optimizer): {:.2f} % of a step.\n"
      "Medians over the steps, wall time. native: LibTorch's BatchNorm2d and a separate ReLU. Memory: the "
      "most\n"
      "that a trainer alone added to the process.\n",
      json["norms"]["renorm"]["overhead_percent"].get<double>());
}

}  // namespace

void run_bench_step(const BenchStepOptions& options) {
  if (!options.json.empty()) check_writable(options.json);
  at::set_num_threads(options.threads);
  Progress progress;
  data::OpenOptions open;
  open.threads = options.threads;
  const data::Dataset dataset = data::open_dataset(options.data, open);
  const std::vector<Measured> all = measure(options, dataset, progress);
  progress.clear();
  const auto trainer = trainer_for(options, dataset, kNorms[0]);
  const Json json = to_json(options, *trainer, all);
  print_table(options, *trainer, json);
  if (!options.json.empty()) write_atomically(options.json, json.dump(2) + "\n");
}

}  // namespace renorm::cli
