// The result of a training step, and its sum over several processes.
#pragma once

#include <renorm/nn/model.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "dist/group.h"

namespace renorm::train {

// Seconds of a step by part.
struct StepTimes {
  double load = 0.0;     // sampling, and loading or waiting for images loaded in advance
  double forward = 0.0;  // including the loss
  double backward = 0.0;
  double optimizer = 0.0;
  double other = 0.0;  // averages of statistics and of weights, checks
  double wait = 0.0;   // for the sums over all processes

  double all() const { return load + forward + backward + optimizer + other + wait; }
};

struct StepPart {
  const char* name;
  double StepTimes::*seconds;
};
constexpr StepPart kStepParts[] = {{"load", &StepTimes::load},           {"forward", &StepTimes::forward},
                                   {"backward", &StepTimes::backward},   {"wait", &StepTimes::wait},
                                   {"optimizer", &StepTimes::optimizer}, {"other", &StepTimes::other}};

struct StepResult {
  double loss = 0.0;  // mean over the step's examples, label smoothing included
  int64_t correct = 0;
  int64_t examples = 0;
  double learning_rate = 0.0;
  double gradient_norm = 0.0;  // before clipping
  double r_max = 1.0;
  double d_max = 0.0;
  int64_t skipped_images = 0;  // that could not be read
  bool stop = false;           // whether a process was asked to stop
  StepTimes times;             // of this process

  double accuracy() const {  // percent
    return 100.0 * static_cast<double>(correct) / static_cast<double>(examples);
  }
};

// Sums what the processes of a step found besides the gradients: results, errors, requests to stop, and the
// statistics that the layers collected.
class StepSum {
 public:
  StepSum(dist::Group& group, std::vector<NamedLayer> layers);

  // Before the first pass of a step.
  void begin();
  // Starts the sum; the second call of a step does nothing. To be called after the last forward pass, so that
  // the backward pass hides the sum, or once this process has failed.
  void start(const StepResult& result, bool failed);
  // Waits for the sum. Sets what the processes share of the result, and the statistics of the layers. Returns
  // whether a process failed before its start().
  bool finish(StepResult* result);

 private:
  dist::Group& group_;
  std::vector<NamedLayer> layers_;
  torch::Tensor values_;
  dist::Group::Wait wait_;  // null: not started
};

}  // namespace renorm::train
