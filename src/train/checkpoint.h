// Checkpoints: folders step-000000500, each complete or absent. No torch.
//   model.safetensors  average.safetensors  optimizer.safetensors  state.json
//   SHA256SUMS         of all of them; `sha256sum -c SHA256SUMS` in the folder checks them as well
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/description.h"
#include "train/config.h"

namespace renorm::train {

// state.json: everything of a checkpoint but tensors. The file also says {"sampler": {"seed", "step"}} and
// {"rng": {"seed"}}: samplers and random numbers are pure functions of seed and step, so that is all of their
// state. Reading checks that they agree with `config` and `step`.
struct RunState {
  int64_t step = 0;
  Config config;                                // resolved
  std::map<std::string, std::string> versions;  // renorm, libtorch, simd
  double best_accuracy = -1.0;                  // percent, of all evaluations so far; -1: none
  int64_t best_step = -1;                       // -1: none
  int64_t metrics_bytes = 0;                    // length of metrics.jsonl when this was written
  int64_t summary_bytes = 0;                    // length of summary.csv
  double seconds = 0.0;                         // time spent in training so far
  int64_t parameters = 0;
  data::Description data;      // so that the model can be used without the data it was trained on
  int64_t skipped_images = 0;  // that could not be read, over all steps
};
// All numbers must be finite and texts UTF-8.
std::string to_json(const RunState& state);
// Throws DataError that starts with `file`: not JSON, an entry missing, unknown, given twice, of the wrong
// type or out of range, nested too deep, or a format_version that this program does not know. A setting that
// `config` of the file lacks has its default: it is newer than the file.
RunState parse_run_state(const std::string& text, const std::string& file);

struct Checkpoint {
  RunState state;
  std::map<std::string, std::string> tensors;  // "model.safetensors" -> bytes
};

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path);  // DIR/checkpoints; made by the first write

  // Written to a temporary folder, synced, renamed, parent synced. Then the links `last` and `best`
  // (relative, for users) are set, and of the steps up to this one all but the newest `keep` >= 1 and the
  // best are deleted. Newer ones, which exist only if the run went back, stay until it reaches them. A
  // checkpoint of the same step is replaced. Throws IoError with path and reason; the existing checkpoints
  // stay.
  void write(const Checkpoint& checkpoint, int64_t keep);
  // The part of `write` after the checkpoint itself: links and deletion. For a run that continues from
  // `state`, in case the process that wrote it was killed before. Throws IoError.
  void settle(const RunState& state, int64_t keep);

  // Steps that have a folder, ascending. Reading finds out whether they are valid.
  std::vector<int64_t> steps() const;
  std::string path_of(int64_t step) const;

  // Reads and verifies one. Throws DataError with the file that is torn, altered, missing or unexpected.
  Checkpoint read(int64_t step) const;
  // The step of "step-500", "500", "last" (the newest valid one) or "best" (as recorded in the newest valid
  // one). Throws MissingInputError.
  int64_t find(const std::string& name) const;
  // The newest valid one; `refused` (may be null) gets one sentence for each newer, invalid one. Throws
  // MissingInputError if there is none.
  Checkpoint newest(std::vector<std::string>* refused) const;
  // Deletes leftovers of killed processes. No other process may be writing.
  void clean() const;

 private:
  std::string path_;
};

}  // namespace renorm::train
