#include "experiments/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "data/dataset_kinds.h"
#include "data/sampler.h"
#include "data/strokes.h"
#include "train/settings.h"

namespace renorm::experiments {
namespace {

constexpr int64_t kFewLabels = 32;
constexpr int64_t kMostSeeds = 1000;

// How minibatches are biased, and how a biased batchnorm is evaluated with batch statistics.
struct Samplers {
  std::string pairs;
  std::string pairs_evaluation;
  std::string blocks;
};

// The paper draws 16 of 1,000 labels; of ten labels nearly all would be drawn.
Samplers samplers_for(int64_t labels) {
  if (labels < kFewLabels) return {"labels:4x8", "labels:4x8", "blocks:2x4x8"};
  return {"labels:16x2", "labels:25x2", "blocks:8x16x2"};
}

// Everything that is equal between the arms; the schedules of learning rate and clip are fractions of the
// run.
train::Config base_config(const ExperimentOptions& options) {
  train::Config config;
  config.data = !options.data.empty() ? options.data : (options.full ? "strokes:train=200" : "strokes");
  config.model = !options.model.empty() ? options.model : "convnet";
  config.steps = options.steps > 0 ? options.steps : (options.full ? 4000 : 1300);
  config.workers = 4;
  config.minibatch = 32;
  config.threads = 1;
  config.log_every = std::max<int64_t>(1, config.steps / 50);
  config.eval_every = std::max<int64_t>(1, config.steps / (options.full ? 20 : 10));
  config.keep = 1;
  return config;
}

struct Variant {
  const char* name;
  const char* label;
  const char* norm;
};
constexpr Variant kBatchnorm = {"batchnorm", "batchnorm", "batchnorm"};
constexpr Variant kRenorm = {"renorm", "Batch Renorm", "renorm"};

Arm arm_of(const train::Config& base, const std::string& figure, const Variant& variant) {
  Arm arm;
  arm.name = fmt::format("{}-{}", figure, variant.name);
  arm.figure = figure;
  arm.label = variant.label;
  arm.config = base;
  arm.config.norm = variant.norm;
  return arm;
}

void add_iid(const train::Config& base, std::vector<Arm>* arms) {
  arms->push_back(arm_of(base, "iid", {"batchnorm", "i.i.d. batchnorm", "batchnorm"}));
  arms->back().paper.test_accuracy = 78.3;
  arms->back().paper.note = "at 130k steps";
  arms->push_back(arm_of(base, "iid", {"renorm", "i.i.d. Batch Renorm", "renorm"}));
  arms->back().paper.test_accuracy = 78.5;
  arms->back().paper.note = "at 130k steps";
}

void add_micro4(train::Config base, std::vector<Arm>* arms) {
  base.microbatch = 4;
  arms->push_back(arm_of(base, "micro4", kBatchnorm));
  arms->back().paper.test_accuracy = 74.2;
  arms->back().paper.note = "at 210k steps, slow";
  arms->push_back(arm_of(base, "micro4", kRenorm));
  arms->back().paper.test_accuracy = 76.5;
  arms->back().paper.note = "at 130k steps, faster";
}

void add_pairs(train::Config base, const Samplers& samplers, std::vector<Arm>* arms) {
  base.sampler = samplers.pairs;
  Arm batchnorm = arm_of(base, "pairs", kBatchnorm);
  batchnorm.paper.test_accuracy = 67.0;
  batchnorm.paper.train_accuracy = 72.8;
  batchnorm.paper.batch_statistics_accuracy = 76.5;
  batchnorm.measures_training_set = true;
  batchnorm.batch_statistics_sampler = samplers.pairs_evaluation;
  arms->push_back(batchnorm);
  arms->push_back(arm_of(base, "pairs", {"halves", "batchnorm, labels split over groups", "batchnorm"}));
  arms->back().config.split_pairs = true;
  arms->back().paper.test_accuracy = 77.4;
  arms->back().paper.note = "at 140k steps";
  arms->push_back(arm_of(base, "pairs", kRenorm));
  arms->back().paper.test_accuracy = 78.5;
  arms->back().paper.note = "at 120k steps";
}

void add_blocks(train::Config base, const Samplers& samplers, std::vector<Arm>* arms) {
  base.sampler = samplers.blocks;
  Arm batchnorm = arm_of(base, "blocks", kBatchnorm);
  batchnorm.measures_training_set = true;
  batchnorm.batch_statistics_sampler = samplers.blocks;
  arms->push_back(batchnorm);
  arms->push_back(arm_of(base, "blocks", {"dealt", "batchnorm, images dealt over minibatches", "batchnorm"}));
  arms->back().config.deal = true;
  arms->push_back(arm_of(base, "blocks", kRenorm));
}

std::vector<Arm> all_arms(const train::Config& base, const Samplers& samplers) {
  std::vector<Arm> arms;
  add_iid(base, &arms);
  add_micro4(base, &arms);
  add_pairs(base, samplers, &arms);
  add_blocks(base, samplers, &arms);
  return arms;
}

std::vector<record::Figure> figures_for(const Samplers& samplers) {
  return {
      {"iid", "Independent minibatches of 32",
       "Both norms, 4 minibatches of 32 a step. In the paper Batch Renorm ends marginally higher.", true},
      {"micro4", "Normalised in groups of 4",
       "Gradients are summed over the same images as above, but statistics come from 4 images.", true},
      {"pairs", "Biased minibatches: " + samplers.pairs,
       "In the paper a minibatch has 16 labels with 2 images each, and batchnorm learns to use the company "
       "an image keeps; with the images of a label split over groups, or with Batch Renorm, it cannot.",
       true},
      {"blocks", "More strongly biased minibatches: " + samplers.blocks,
       "The labels of a minibatch come from one block of neighbours, as in reinforcement or continual "
       "learning.",
       false},
  };
}

void keep_named(const std::vector<std::string>& names, std::vector<Arm>* arms) {
  const std::vector<std::string> known = arm_names();
  for (const std::string& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw UsageError(fmt::format("--arms does not know '{}'{}", printable(name), name_hint(name, known)));
  }
  const auto unnamed = [&names](const Arm& arm) {
    return std::find(names.begin(), names.end(), arm.name) == names.end();
  };
  if (!names.empty()) arms->erase(std::remove_if(arms->begin(), arms->end(), unnamed), arms->end());
}

// Generated data say how many images of a label they have; files are found out about when they are read.
void check_images(const Arm& arm) {
  const auto [name, options] = split_spec(arm.config.data);
  if (name != "strokes") return;
  const data::StrokesOptions strokes = data::parse_strokes(options);
  const auto check = [&](const std::string& sampler, const char* split, int64_t images) {
    const int64_t needed = sampler.empty() ? 0 : data::parse_sampler(sampler).images;
    if (needed <= images) return;
    throw UsageError(fmt::format("--data {} has {} {} images a class, but {} takes {} of one label ({})",
                                 printable(arm.config.data), images, split, arm.name, needed, sampler));
  };
  check(arm.config.sampler, "training", strokes.train);
  check(arm.batch_statistics_sampler, "test", strokes.test);
}

}  // namespace

std::vector<std::string> arm_names() {
  std::vector<std::string> names;
  for (const Arm& arm : all_arms({}, samplers_for(kFewLabels))) names.push_back(arm.name);
  return names;
}

Experiment paper_experiment(const ExperimentOptions& options) {
  if (options.seeds < 0 || options.seeds > kMostSeeds) {
    throw UsageError(
        fmt::format("--seeds must be a whole number from 1 to {}, got {}", kMostSeeds, options.seeds));
  }
  if (options.steps < 0) {
    throw UsageError(fmt::format("--steps must be a whole number of at least 1, got {}", options.steps));
  }
  const train::Config base = base_config(options);
  const Samplers samplers = samplers_for(data::label_count(base.data, {}));
  Experiment experiment;
  experiment.name = options.full ? "full" : "quick";
  experiment.title = "Batch Renormalization: the paper's experiments";
  experiment.figures = figures_for(samplers);
  experiment.arms = all_arms(base, samplers);
  keep_named(options.arms, &experiment.arms);
  for (const Arm& arm : experiment.arms) {
    train::check(arm.config);
    check_images(arm);
  }
  const int64_t seeds = options.seeds > 0 ? options.seeds : (options.full ? 3 : 1);
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
  ExperimentOptions size;
  size.full = results.name == "full";
  const train::Config usual = base_config(size);
  std::string command = "renorm reproduce --" + results.name;
  const auto add = [&command](const char* flag, const std::string& value) {
    command += fmt::format(" {} {}", flag, shell_quoted(value));
  };
  std::vector<std::string> names;
  size_t seeds = 0;
  for (const record::Arm& arm : results.arms) {
    names.push_back(arm.name);
    seeds = std::max(seeds, arm.runs.size());
  }
  if (seeds != (size.full ? 3U : 1U)) add("--seeds", fmt::format("{}", seeds));
  if (results.steps != usual.steps) add("--steps", fmt::format("{}", results.steps));
  if (names != arm_names()) add("--arms", fmt::format("{}", fmt::join(names, ",")));
  if (results.data != usual.data) add("--data", results.data);
  if (results.model != usual.model) add("--model", results.model);
  return command;
}

record::Results blank_results(const Experiment& experiment) {
  record::Results results;
  const train::Config& first = experiment.arms.at(0).config;
  results.name = experiment.name;
  results.title = experiment.title;
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
    arm.renorm = plan.config.norm == "renorm";
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
