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
#include "experiments/kinds.h"
#include "train/settings.h"

namespace renorm::experiments {
namespace {

constexpr int64_t kMaxSeeds = 1000;
constexpr int64_t kLogRecords = 50;  // per run

// The schedules of learning rate and clip are fractions of the run.
Base base_of(const Recipe& recipe, size_t size, const ExperimentOptions& options) {
  const Length& length = recipe.lengths.at(size);
  train::Config config = recipe.settings;
  config.data = !options.data.empty() ? options.data : length.data;
  config.model = !options.model.empty() ? options.model : length.model;
  config.steps = options.steps > 0 ? options.steps : length.steps;
  config.warmup = config.warmup * config.steps / length.steps;
  if (config.model != length.model) config.norm_bias = 0.0;  // it belongs to the recipe's net
  config.threads = 1;
  config.log_every = std::max<int64_t>(1, config.steps / kLogRecords);
  config.eval_every = std::max<int64_t>(1, config.steps / length.evaluations);
  config.keep = 1;
  return {config, data::label_count(config.data, {})};
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

// Names the data and the net of figures whose arms have others than the experiment.
void name_recipes(Experiment* experiment) {
  for (record::Figure& figure : experiment->figures) {
    for (const Arm& arm : experiment->arms) {
      if (arm.figure != figure.id) continue;
      if (arm.config.data != experiment->data) figure.data = arm.config.data;
      if (arm.config.model != experiment->model) figure.model = arm.config.model;
    }
  }
}

// Data, net and length of an arm in results.
struct Origin {
  std::string data;
  std::string model;
  int64_t steps = 0;
};

Origin origin_of(const record::Arm& arm, const record::Results& results) {
  Origin origin = {results.data, results.model, arm.steps};
  for (const record::Figure& figure : results.figures) {
    if (figure.id != arm.figure) continue;
    origin.data = figure.data.value_or(origin.data);
    origin.model = figure.model.value_or(origin.model);
  }
  return origin;
}

// The value of the first arm that differs from its usual origin; an option changes all arms. nullopt if none
// differs.
template <typename Field>
std::optional<Field> changed(const record::Results& results, const record::Results& usual,
                             Field Origin::*field) {
  for (const record::Arm& arm : results.arms) {
    for (const record::Arm& other : usual.arms) {
      if (other.name != arm.name) continue;
      const Origin ours = origin_of(arm, results);
      if (ours.*field != origin_of(other, usual).*field) return ours.*field;
    }
  }
  return std::nullopt;
}

}  // namespace

const std::vector<ExperimentKind>& experiment_kinds() {
  static const std::vector<ExperimentKind> kinds = [] {
    std::vector<ExperimentKind> all = beyond_the_paper();
    all.insert(all.begin(), paper());
    return all;
  }();
  return kinds;
}

const ExperimentKind& experiment_named(const std::string& name) {
  std::vector<std::string> names;
  for (const ExperimentKind& kind : experiment_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  throw UsageError(unknown_name("experiment", name, names));
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
  for (const Arm& arm : kind.arms(std::vector<Base>(kind.recipes.size()))) names.push_back(arm.name);
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
  const size_t size = options.full ? kind.sizes.size() - 1 : 0;
  std::vector<Base> bases;
  for (const Recipe& recipe : kind.recipes) bases.push_back(base_of(recipe, size, options));
  Experiment experiment;
  experiment.name = kind.sizes[size].name;
  experiment.title = kind.title;
  experiment.measure = kind.measure;
  experiment.reference = kind.reference;
  experiment.data = bases.front().config.data;
  experiment.model = bases.front().config.model;
  experiment.steps = bases.front().config.steps;
  experiment.figures = kind.figures(bases);
  experiment.arms = kind.arms(bases);
  name_recipes(&experiment);
  keep_named(options.arms, arm_names(kind), &experiment.arms);
  for (const Arm& arm : experiment.arms) {
    train::check(arm.config);
    check_images(arm);
  }
  const int64_t seeds = options.seeds > 0 ? options.seeds : kind.sizes[size].seeds;
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
  ExperimentOptions options;
  options.full = kind->sizes.back().name == results.name;
  const record::Results usual = blank_results(make_experiment(*kind, options));
  std::string command = fmt::format("{} --{}", kind->command, options.full ? "full" : "quick");
  const auto add = [&command](const char* flag, const std::string& value) {
    command += fmt::format(" {} {}", flag, shell_quoted(value));
  };
  std::vector<std::string> names;
  size_t seeds = 0;
  for (const record::Arm& arm : results.arms) {
    names.push_back(arm.name);
    seeds = std::max(seeds, arm.runs.size());
  }
  if (seeds != usual.seeds.size()) add("--seeds", fmt::format("{}", seeds));
  if (const auto steps = changed(results, usual, &Origin::steps)) add("--steps", fmt::format("{}", *steps));
  if (names != arm_names(*kind)) add("--arms", fmt::format("{}", fmt::join(names, ",")));
  if (const auto data = changed(results, usual, &Origin::data)) add("--data", *data);
  if (const auto model = changed(results, usual, &Origin::model)) add("--model", *model);
  return command;
}

record::Results blank_results(const Experiment& experiment) {
  record::Results results;
  results.name = experiment.name;
  results.title = experiment.title;
  results.measure = experiment.measure;
  results.reference = experiment.reference;
  results.data = experiment.data;
  results.model = experiment.model;
  results.steps = experiment.steps;
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
    if (plan.extra_rows > 0) arm.extra_rows = plan.extra_rows;
    arm.x = plan.x;
    arm.y = plan.y;
    arm.series = plan.series;
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
