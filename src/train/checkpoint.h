// Checkpoints: folders step-000000500, each complete or absent.
//   model.safetensors  average.safetensors  optimizer.safetensors  state.json
//   SHA256SUMS         of all of them; `sha256sum -c SHA256SUMS` in the folder checks them as well
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "train/run_state.h"

namespace renorm::train {

// The files of a checkpoint that hold tensors.
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kAverageFile = "average.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";

struct Checkpoint {
  RunState state;
  std::map<std::string, std::string> tensors;  // "model.safetensors" -> bytes
};

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path);  // DIR/checkpoints; made by the first write

  // Written to a temporary folder, synced, renamed, parent synced. Then the links `last` and `best`
  // (relative, for users) are set, unless something else has the name, and of the steps up to this one all
  // but the newest `keep` >= 1 and the best are deleted. Newer ones, which exist only if the run went back,
  // stay until it reaches them. A checkpoint of the same step is replaced. A folder with any other file than
  // those of a checkpoint is never deleted. Throws IoError with path and reason; the existing checkpoints
  // stay. `check_folder` throws IoError if the folder must not be changed any more. It is called before
  // anything is written, before the rename, and before links and deletion.
  void write(
      const Checkpoint& checkpoint, int64_t keep, const std::function<void()>& check_folder = [] {});
  // The part of `write` after the checkpoint itself: links and deletion. For a run that continues from
  // `state`, in case the process that wrote it was killed before. Throws IoError.
  void settle(const RunState& state, int64_t keep);

  // Throws OutputError if something else has the name of a checkpoint of a later step.
  void check_free_after(int64_t step) const;

  // Steps that have a folder, ascending. They are verified when read.
  std::vector<int64_t> steps() const;
  std::string path_of(int64_t step) const;

  // Reads and verifies one. Throws DataError with the file that is torn, altered, missing or unexpected.
  Checkpoint read(int64_t step) const;
  // The step of "step-500", "500", "last" (the newest valid one) or "best" (as recorded in the newest valid
  // one). `refused` as for newest(). Throws MissingInputError.
  int64_t find(const std::string& name, std::vector<std::string>* refused = nullptr) const;
  // The newest valid one; `refused` (may be null) gets one sentence for each newer, invalid one, and for one
  // that the link `last` names and that is missing. Throws MissingInputError if there is none.
  Checkpoint newest(std::vector<std::string>* refused) const;
  // Deletes leftovers of killed processes, which hold nothing but files of a checkpoint. No other process may
  // be writing.
  void clean() const;

 private:
  std::string path_;
};

}  // namespace renorm::train
