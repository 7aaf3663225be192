// The run that a folder holds, read and checked before anything in the folder changes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint.h"
#include "train/config.h"
#include "train/run_folder.h"

namespace renorm::train {

// config.toml.
struct StoredConfig {
  std::string id;  // of the run; "" in files of versions without ids
  Config config;
  std::vector<std::string> given;  // the settings that the file has
};
// Throws MissingInputError, UsageError "FILE:LINE:COLUMN: ...".
StoredConfig read_config(const RunPaths& paths);

struct StoredRun {
  std::string id;  // "" if no file has one
  // That of the checkpoint, except for the settings that may change, which are those of config.toml. Without
  // a checkpoint, that of config.toml.
  Config config;
  std::optional<Checkpoint> checkpoint;  // the newest valid one
  // For the user: newer checkpoints that are invalid or missing, or that there is none.
  std::vector<std::string> notes;
};
// Throws as read_config does; UsageError if config.toml was edited, with the settings that differ; DataError
// if none of the checkpoints is valid, if metrics.jsonl or summary.csv lacks lines that the checkpoint
// counts, if metrics.jsonl has lines that are no records, or if the files are of different runs.
StoredRun read_run(const RunPaths& paths);

}  // namespace renorm::train
