// The paper's experiments as lists of arms; an arm is settings of `renorm train`. No torch.
#pragma once

#include <cstdint>
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

struct Experiment {
  std::string name;  // "quick", "full"
  std::string title;
  std::vector<record::Figure> figures;
  std::vector<Arm> arms;
  std::vector<uint64_t> seeds;
};

struct ExperimentOptions {
  bool full = false;
  int64_t seeds = 0;              // 0: one, or three of the full experiment
  int64_t steps = 0;              // 0: as many as the recipe has
  std::string data;               // "": strokes of the recipe's size
  std::string model;              // "": the recipe's
  std::vector<std::string> arms;  // empty: all
};

// The section on results of the paper, scaled down, and the same with a stronger bias. Data with few labels
// gets samplers that are biased for it. Throws UsageError for an unknown arm or an impossible number.
Experiment paper_experiment(const ExperimentOptions& options);

// The names of all arms, in their order.
std::vector<std::string> arm_names();

// The flags of `renorm train` that make `config` from the defaults: {"--norm", "batchnorm", "--deal"}.
std::vector<std::string> flags_of(const train::Config& config);

// The command that asks for an experiment with these arms and seeds.
std::string command_of(const record::Results& results);

// Results without any figure: what the experiment is going to measure, and where. Folders are
// runs/ARM/seed-N.
record::Results blank_results(const Experiment& experiment);

}  // namespace renorm::experiments
