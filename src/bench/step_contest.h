// Training steps of one model with different norms and memory layouts, one of each in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/choice.h"
#include "data/dataset.h"
#include "train/trainer.h"

namespace renorm::bench {

enum class StepNorm { kRenorm, kNative, kBatchnorm, kTensorOps, kGroupnorm };
enum class StepLayouts { kBoth, kNchw, kChannelsLast };

struct StepOptions {
  std::string model = "inception-small";
  std::string data;  // "": strokes, or random images for nets for large images
  StepLayouts layouts = StepLayouts::kBoth;
  std::vector<StepNorm> norms;  // empty: all. kNative is always included
  int64_t minibatch = 32;
  int64_t workers = 1;
  int threads = 1;
  int64_t steps = 0;  // timed steps of each; 0: 30, or 5 for nets for large images
  std::string json;
};

constexpr const char* kRandomImages = "random";  // data: random bytes in the model's own size

// The peak that a trainer adds to a process, in bytes; -1: unknown.
struct PeakMemory {
  double tensors = -1.0;   // alive at once
  double resident = -1.0;  // resident set size, including fragmentation of the allocator
};

struct Contestant {
  train::MemoryFormat layout;
  StepNorm norm;
  std::vector<train::StepTimes> steps;
  std::vector<double> cpu_seconds;  // of each step, all threads
  PeakMemory peak_memory;
};

enum class InferenceKind { kNative, kRenorm, kFolded };

// Evaluation-mode passes of a minibatch.
struct InferenceTimes {
  train::MemoryFormat layout;
  InferenceKind kind;
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

// The names in flags, tables and files.
namespace renorm {

// In the order of the table.
template <>
struct Choices<bench::StepNorm> {
  static constexpr const char* kWhat = "norm";
  static constexpr Choice<bench::StepNorm> kAll[] = {{bench::StepNorm::kRenorm, "renorm"},
                                                     {bench::StepNorm::kNative, "native"},
                                                     {bench::StepNorm::kBatchnorm, "batchnorm"},
                                                     {bench::StepNorm::kTensorOps, "tensor-ops"},
                                                     {bench::StepNorm::kGroupnorm, "groupnorm"}};
};

template <>
struct Choices<bench::StepLayouts> {
  static constexpr const char* kWhat = "memory format";
  static constexpr Choice<bench::StepLayouts> kAll[] = {{bench::StepLayouts::kNchw, "nchw"},
                                                        {bench::StepLayouts::kChannelsLast, "channels-last"},
                                                        {bench::StepLayouts::kBoth, "both"}};
};

template <>
struct Choices<bench::InferenceKind> {
  static constexpr const char* kWhat = "kind of inference";
  static constexpr Choice<bench::InferenceKind> kAll[] = {{bench::InferenceKind::kNative, "native"},
                                                          {bench::InferenceKind::kRenorm, "renorm"},
                                                          {bench::InferenceKind::kFolded, "folded"}};
};

}  // namespace renorm
