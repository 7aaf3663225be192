#include "experiments/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "data/dataset_kinds.h"
#include "data/sampler.h"
#include "experiments/paper.h"
#include "train/settings.h"

namespace renorm::experiments {
namespace {

constexpr int64_t kMaxSeeds = 1000;
constexpr int64_t kLogRecords = 50;  // per run

// The settings that all arms share. The schedules of learning rate and clip are fractions of the run.
train::Config base_config(const ExperimentKind& kind, const ExperimentSize& size,
                          const ExperimentOptions& options) {
  train::Config config = kind.base;
  config.data = !options.data.empty() ? options.data : size.data;
  config.model = !options.model.empty() ? options.model : size.model;
  config.steps = options.steps > 0 ? options.steps : size.steps;
  config.threads = 1;
  config.log_every = std::max<int64_t>(1, config.steps / kLogRecords);
  config.eval_every = std::max<int64_t>(1, config.steps / size.evaluations);
  config.keep = 1;
  return config;
}

const ExperimentSize& size_named(const ExperimentKind& kind, const std::string& name) {
  return *std::find_if(kind.sizes.begin(), kind.sizes.end(),
                       [&](const ExperimentSize& size) { return size.name == name; });
}

void keep_named(const std::vector<std::string>& names, const std::vector<std::string>& known,
                std::vector<Arm>* arms) {
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw UsageError("--arms: " + unknown_name("arm", name, known));
  }
  const auto unnamed = [&names](const Arm& arm) {
    return std::find(names.begin(), names.end(), arm.name) == names.end();
  };
  if (!names.empty()) arms->erase(std::remove_if(arms->begin(), arms->end(), unnamed), arms->end());
}

// Where the spec determines the number of images. Files are checked when they are read.
void check_images(const Arm& arm) {
  const data::KnownSizes sizes = data::known_sizes(arm.config.data);
  const auto check = [&](const std::string& sampler, const char* split, std::optional<int64_t> images) {
    const int64_t needed = sampler.empty() ? 0 : data::parse_sampler(sampler).images;
    if (!images || needed <= *images) return;
    throw UsageError(fmt::format("--data {} has {} {} images per class, but {} takes {} of one label ({})",
                                 printable(arm.config.data), *images, split, arm.name, needed, sampler));
  };
  check(arm.config.sampler, "training", sizes.train_per_label);
  check(arm.batch_statistics_sampler, "test", sizes.test_per_label);
}

}  // namespace

const std::vector<ExperimentKind>& experiment_kinds() {
  static const std::vector<ExperimentKind> kinds = {paper()};
  return kinds;
}

const ExperimentKind* find_experiment(const std::string& results_name) {
  for (const ExperimentKind& kind : experiment_kinds()) {
    for (const ExperimentSize& size : kind.sizes) {
      if (size.name == results_name) return &kind;
    }
  }
  return nullptr;
}

std::vector<std::string> arm_names(const ExperimentKind& kind) {
  std::vector<std::string> names;
  for (const Arm& arm : kind.arms({}, 0)) names.push_back(arm.name);
  return names;
}

Experiment make_experiment(const ExperimentKind& kind, const ExperimentOptions& options) {
  if (options.seeds < 0 || options.seeds > kMaxSeeds) {
    throw UsageError(
        fmt::format("--seeds must be a whole number from 1 to {}, got {}", kMaxSeeds, options.seeds));
  }
  if (options.steps < 0) {
    throw UsageError(fmt::format("--steps must be a whole number of at least 1, got {}", options.steps));
  }
  const ExperimentSize& size = options.full ? kind.sizes.back() : kind.sizes.front();
  const train::Config base = base_config(kind, size, options);
  const int64_t labels = data::label_count(base.data, {});
  Experiment experiment;
  experiment.name = size.name;
  experiment.title = kind.title;
  experiment.reference = kind.reference;
  experiment.figures = kind.figures(labels);
  experiment.arms = kind.arms(base, labels);
  keep_named(options.arms, arm_names(kind), &experiment.arms);
  for (const Arm& arm : experiment.arms) {
    train::check(arm.config);
    check_images(arm);
  }
  const int64_t seeds = options.seeds > 0 ? options.seeds : size.seeds;
  for (int64_t seed = 1; seed <= seeds; ++seed) experiment.seeds.push_back(static_cast<uint64_t>(seed));
  return experiment;
}

std::vector<std::string> flags_of(const train::Config& config) {
  std::vector<std::string> flags;
  for (const train::Setting& setting : train::settings()) {
    const std::string value = setting.get(config);
    if (value == setting.get(train::Config{})) continue;
    flags.push_back("--" + setting.name);
    if (setting.type == train::Setting::Type::kSwitch) {
      if (value != "true") flags.back() += "=" + value;
    } else {
      flags.push_back(value);
    }
  }
  return flags;
}

std::string command_of(const record::Results& results) {
  const ExperimentKind* kind = find_experiment(results.name);
  if (kind == nullptr) return results.command;
  const ExperimentSize& usual = size_named(*kind, results.name);
  std::string command = fmt::format("{} --{}", kind->command, results.name);
  const auto add = [&command](const char* flag, const std::string& value) {
    command += fmt::format(" {} {}", flag, shell_quoted(value));
  };
  std::vector<std::string> names;
  size_t seeds = 0;
  for (const record::Arm& arm : results.arms) {
    names.push_back(arm.name);
    seeds = std::max(seeds, arm.runs.size());
  }
  if (static_cast<int64_t>(seeds) != usual.seeds) add("--seeds", fmt::format("{}", seeds));
  if (results.steps != usual.steps) add("--steps", fmt::format("{}", results.steps));
  if (names != arm_names(*kind)) add("--arms", fmt::format("{}", fmt::join(names, ",")));
  if (results.data != usual.data) add("--data", results.data);
  if (results.model != usual.model) add("--model", results.model);
  return command;
}

record::Results blank_results(const Experiment& experiment) {
  record::Results results;
  const train::Config& first = experiment.arms.at(0).config;
  results.name = experiment.name;
  results.title = experiment.title;
  results.reference = experiment.reference;
  results.data = first.data;
  results.model = first.model;
  results.steps = first.steps;
  results.seeds = experiment.seeds;
  for (const Arm& plan : experiment.arms) {
    record::Arm arm;
    arm.name = plan.name;
    arm.figure = plan.figure;
    arm.label = plan.label;
    arm.command = "renorm train --out runs/" + plan.name;
    for (const std::string& word : flags_of(plan.config)) arm.command += " " + shell_quoted(word);
    arm.renorm = plan.config.norm == train::NormKind::kRenorm;
    arm.steps = plan.config.steps;
    arm.paper = plan.paper;
    if (plan.measures_training_set) arm.train_accuracy.emplace();
    if (!plan.batch_statistics_sampler.empty()) arm.batch_statistics_accuracy.emplace();
    arm.batch_statistics_sampler = plan.batch_statistics_sampler;
    for (const uint64_t seed : experiment.seeds) {
      arm.runs.push_back({seed, fmt::format("runs/{}/seed-{}", plan.name, seed), 0, 0.0, false});
    }
    results.arms.push_back(std::move(arm));
  }
  for (const record::Figure& figure : experiment.figures) {
    const bool shown = std::any_of(results.arms.begin(), results.arms.end(),
                                   [&](const record::Arm& arm) { return arm.figure == figure.id; });
    if (shown) results.figures.push_back(figure);
  }
  return results;
}

}  // namespace renorm::experiments
