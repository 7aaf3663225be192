// Training steps of one model with different norms and memory layouts, one of each in turn.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/step_options.h"
#include "data/dataset.h"
#include "train/trainer.h"

namespace renorm::bench {

constexpr const char* kNativeNorm = "native";
constexpr const char* kRandomImages = "random";  // data: bytes without meaning in the model's own size

// What a trainer adds to a process at most, in bytes; -1: not known.
struct PeakMemory {
  double tensors = -1.0;   // alive at once
  double resident = -1.0;  // as the system counts it, with what the allocator leaves empty in between
};

struct Contestant {
  std::string layout;  // nchw, channels-last
  std::string norm;    // renorm, batchnorm, native, tensor-ops
  std::vector<train::StepTimes> steps;
  std::vector<double> cpu_seconds;  // of each step, all threads
  PeakMemory peak_memory;
};

// Evaluation-mode passes of a minibatch.
struct InferenceTimes {
  std::string layout;
  std::string what;             // native, renorm, folded
  std::vector<double> seconds;  // one a round
};

struct StepContest {
  StepOptions options;  // with what was left open filled in
  int64_t parameters = 0;
  std::vector<Contestant> contestants;
  std::vector<InferenceTimes> inference;
};

StepContest run_step_contest(const StepOptions& options,
                             const std::function<void(const std::string&)>& progress);

}  // namespace renorm::bench
