// Training steps of one model with different norms and memory layouts, one of each in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "train/trainer.h"

namespace renorm::bench {

// The norms that can be compared, in the order of the table.
constexpr const char* kStepNorms[] = {"renorm", "native", "batchnorm", "tensor-ops"};

struct StepOptions {
  std::string model = "inception-small";
  std::string data;                    // "": strokes, or random images for nets for large images
  std::string memory_format = "both";  // nchw, channels-last, both
  std::vector<std::string> norms;      // of kStepNorms; empty: all. native is always included
  int64_t minibatch = 32;
  int64_t workers = 1;
  int threads = 1;
  int64_t steps = 0;  // timed steps of each; 0: 30, or 5 for nets for large images
  std::string json;
};

constexpr const char* kNativeNorm = "native";
constexpr const char* kRandomImages = "random";  // data: random bytes in the model's own size

// The peak that a trainer adds to a process, in bytes; -1: unknown.
struct PeakMemory {
  double tensors = -1.0;   // alive at once
  double resident = -1.0;  // resident set size, including fragmentation of the allocator
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
  std::vector<double> seconds;  // one per round
};

struct StepContest {
  StepOptions options;  // with defaults filled in
  int64_t parameters = 0;
  std::vector<Contestant> contestants;
  std::vector<InferenceTimes> inference;
};

StepContest run_step_contest(const StepOptions& options,
                             const std::function<void(const std::string&)>& progress);

}  // namespace renorm::bench
