// state.json: everything of a checkpoint except tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "data/description.h"
#include "record/metrics.h"
#include "train/config.h"

namespace renorm::train {

// The file also has {"sampler": {"seed", "step"}} and {"rng": {"seed"}}: samplers and random numbers are pure
// functions of seed and step, so that is their whole state. Reading checks that they agree with `config` and
// `step`.
struct RunState {
  std::optional<std::string> run;  // id (run_id.h)
  int64_t step = 0;
  Config config;                                // resolved
  std::map<std::string, std::string> versions;  // renorm, libtorch, simd
  double best_accuracy = -1.0;                  // percent, of all evaluations so far; -1: none
  int64_t best_step = -1;                       // -1: none
  int64_t metrics_bytes = 0;                    // length of metrics.jsonl when this was written
  int64_t summary_bytes = 0;                    // length of summary.csv
  double seconds = 0.0;                         // training time so far
  int64_t parameters = 0;
  data::Description data;      // so that the model can be used without its training data
  int64_t skipped_images = 0;  // that could not be read, over all steps
  // The step, if it was saved without its evaluation because test images could not be read.
  std::optional<record::StepRecord> unevaluated;
  // Empty before the first evaluation and in files of versions that did not store it.
  std::optional<record::EvaluationRecord> last_evaluation;
};

// All numbers must be finite, except in `unevaluated` and `last_evaluation`, and texts UTF-8.
std::string to_json(const RunState& state);

// Throws DataError that starts with `file`: invalid JSON, an entry that is missing, unknown, repeated, of the
// wrong type or out of range, nesting that is too deep, or an unsupported format_version. A setting that
// `config` of the file lacks is newer than the file and has its default.
RunState parse_run_state(const std::string& text, const std::string& file);

}  // namespace renorm::train
