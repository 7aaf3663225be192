// Experiments as data: an experiment is a list of arms, a reference arm and claims; an arm is settings of
// `renorm train`.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "record/results.h"
#include "train/config.h"

namespace renorm::experiments {

struct Arm {
  std::string name;
  std::string figure;
  std::string label;
  train::Config config;  // all but the seed
  record::PaperFigures paper;
  bool measures_training_set = false;
  std::string batch_statistics_sampler;  // "": not measured
  int64_t extra_rows = 0;                // of an evaluation on longer sequences; 0: none
  // Where its figure has axes of settings; see record::Figure.
  std::optional<record::Place> x;
  std::optional<record::Place> y;
  std::optional<std::string> series;
};

// A measure of an arm.
struct Subject {
  enum class Measure { kTest, kTrainingSet, kBatchStatistics, kLonger };
  std::string arm;
  Measure measure = Measure::kTest;
};

// A claim to be tested. A claim about arms without all their seeds is not resolved; one about arms that are
// not part of the results is left out.
struct ClaimPlan {
  enum class Kind {
    kDifference,  // a - b lies between `above` and `below`, in percentage points
    kFaster,      // in every seed, a has the final accuracy of b at an earlier evaluation
    kFalls,       // a ends more than `above` below its best evaluation, in percentage points
    kClipping,    // of all `arms`, at most max_r of r and max_d of d are clipped at the final limits
  };
  std::string text;
  bool in_paper = true;
  Kind kind = Kind::kDifference;
  Subject a;
  Subject b;
  double above = 0.0;
  double below = std::numeric_limits<double>::infinity();
  // If above 0, a difference must be more than this share of the loss of b, measured against `of`.
  double share = 0.0;
  Subject of;
  // The text of an earlier claim that there is a loss. Unless that holds, there is nothing to recover and
  // this claim is not resolved.
  std::string recovers_from;
  std::vector<std::string> arms;
  double max_r = 0.0;  // fractions
  double max_d = 0.0;
};

// Default length of a recipe's runs.
struct Length {
  std::string data;
  std::string model;
  int64_t steps;
  int64_t evaluations;  // per run
};

// Settings, data, net and length that arms share.
struct Recipe {
  train::Config settings;
  std::vector<Length> lengths;  // one per size of the experiment
};

// A recipe for one run, with the number of labels of its data.
struct Base {
  train::Config config;
  int64_t labels = 0;
};

struct ExperimentSize {
  std::string name;  // of the results; no two experiments share one
  int64_t seeds;
};

// All that distinguishes one experiment from others. Its file alone has the names of its arms.
struct ExperimentKind {
  std::string name;     // "paper"
  std::string command;  // "renorm reproduce"
  std::string title;
  std::string summary;                 // one line of the help text
  std::optional<std::string> measure;  // see record::Results
  std::vector<ExperimentSize> sizes;   // quick, full
  std::vector<Recipe> recipes;         // the results are named after the first one's data and net
  std::string reference;               // name of the arm that the others are compared with
  // In their order. `bases` has the order of the recipes.
  std::vector<Arm> (*arms)(const std::vector<Base>& bases);
  std::vector<record::Figure> (*figures)(const std::vector<Base>& bases);
  std::vector<ClaimPlan> claims;
};

// The registry.
const std::vector<ExperimentKind>& experiment_kinds();
// Throws UsageError with the names that there are.
const ExperimentKind& experiment_named(const std::string& name);
// The experiment whose results have this name; nullptr if there is none.
const ExperimentKind* find_experiment(const std::string& results_name);

struct Experiment {
  std::string name;  // "quick", "full"
  std::string title;
  std::optional<std::string> measure;
  std::string reference;
  std::string data;  // of the first recipe, as the next two
  std::string model;
  int64_t steps = 0;
  std::vector<record::Figure> figures;
  std::vector<Arm> arms;
  std::vector<uint64_t> seeds;
};

struct ExperimentOptions {
  bool full = false;              // the last size instead of the first
  int64_t seeds = 0;              // 0: as many as the size has
  int64_t steps = 0;              // of all recipes; 0: as many as each has
  std::string data;               // of all recipes; "": each its own
  std::string model;              // as above
  std::vector<std::string> arms;  // empty: all
};

// Throws UsageError for an unknown arm or an impossible number, and as data::label_count does.
Experiment make_experiment(const ExperimentKind& kind, const ExperimentOptions& options);

// The names of all arms, in their order.
std::vector<std::string> arm_names(const ExperimentKind& kind);

// The flags of `renorm train` that make `config` from the defaults: {"--norm", "batchnorm", "--deal"}.
std::vector<std::string> flags_of(const train::Config& config);

// The command that makes an experiment with these arms and seeds.
std::string command_of(const record::Results& results);

// Results without any figure: what the experiment is going to measure, and where. Folders are
// runs/ARM/seed-N.
record::Results blank_results(const Experiment& experiment);

}  // namespace renorm::experiments
