// Experiments as data: an experiment is a list of arms, a reference arm and claims; an arm is settings of
// `renorm train`.
#pragma once

#include <cstdint>
#include <limits>
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
};

// A measure of an arm.
struct Subject {
  enum class Measure { kTest, kTrainingSet, kBatchStatistics };
  std::string arm;
  Measure measure = Measure::kTest;
};

// A claim to be tested. A claim about arms without all their seeds is not resolved; one about arms that are
// not part of the results is left out.
struct ClaimPlan {
  enum class Kind {
    kDifference,  // a - b lies between `above` and `below`, in percentage points
    kFaster,      // in every seed, a has the final accuracy of b at an earlier evaluation
    kClipping,    // of all `arms`, at most max_r of r and max_d of d are clipped at the final limits
  };
  std::string text;
  bool in_paper = true;
  Kind kind = Kind::kDifference;
  Subject a;
  Subject b;
  double above = 0.0;
  double below = std::numeric_limits<double>::infinity();
  // The text of an earlier claim that there is a loss. Unless that holds, there is nothing to recover and
  // this claim is not resolved.
  std::string recovers_from;
  std::vector<std::string> arms;
  double max_r = 0.0;  // fractions
  double max_d = 0.0;
};

// Default length of an experiment.
struct ExperimentSize {
  std::string name;  // of the results; no two experiments share one
  std::string data;
  std::string model;
  int64_t steps;
  int64_t seeds;
  int64_t evaluations;  // per run
};

// All that distinguishes one experiment from others. Its file alone has the names of its arms.
struct ExperimentKind {
  std::string command;  // "renorm reproduce"
  std::string title;
  std::vector<ExperimentSize> sizes;  // the default first
  std::string reference;              // name of the arm that the others are compared with
  train::Config base;                 // settings that all arms share
  // In their order, for data with so many labels.
  std::vector<Arm> (*arms)(const train::Config& base, int64_t labels);
  std::vector<record::Figure> (*figures)(int64_t labels);
  std::vector<ClaimPlan> claims;
};

// The registry.
const std::vector<ExperimentKind>& experiment_kinds();
// The experiment whose results have this name; nullptr if there is none.
const ExperimentKind* find_experiment(const std::string& results_name);

struct Experiment {
  std::string name;  // "quick", "full"
  std::string title;
  std::string reference;
  std::vector<record::Figure> figures;
  std::vector<Arm> arms;
  std::vector<uint64_t> seeds;
};

struct ExperimentOptions {
  bool full = false;              // the last size instead of the first
  int64_t seeds = 0;              // 0: as many as the size has
  int64_t steps = 0;              // 0: as many as the size has
  std::string data;               // "": the size's
  std::string model;              // "": the size's
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
