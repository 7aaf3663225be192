// The files of a run that trains: taken, started, appended to and saved by one process.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/files.h"
#include "record/metrics.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/run_folder.h"
#include "train/run_id.h"
#include "train/run_state.h"

namespace renorm::train {

class RunFiles {
 public:
  explicit RunFiles(const std::string& folder) : paths_(folder), checkpoints_(paths_.checkpoints) {}

  const RunPaths& paths() const { return paths_; }
  std::string checkpoint_path(int64_t step) const { return checkpoints_.path_of(step); }

  // Makes the folder and takes its lock. Throws OutputError, also if another process has worked there since
  // it had the `expected` contents.
  void take(FolderContents expected);
  // Replaces config.toml, unless it has this id and these settings already: users may add comments to it.
  // Throws OutputError.
  void write_config(const Config& config);
  // Makes all files ready for the steps after `state`. Throws OutputError, also for output that can only be
  // written later; IoError if the folder is not this run's any more.
  void start(const RunState& state, const Config& config, const std::string& meeting_place);

  // The first line of metrics.jsonl has the id of the run. Throws IoError, also if the files are not this
  // run's any more.
  void append(record::StepRecord record) { append_line(std::move(record)); }
  void append(record::EvaluationRecord record) { append_line(std::move(record)); }
  void append_summary(const std::string& row) { summary_->append(row); }
  // Writes a checkpoint of `state`, completed by the id and the lengths of the files. Throws IoError, also if
  // the folder is not this run's any more.
  void save(RunState* state, std::map<std::string, std::string> tensors);

  std::string id = new_run_id();  // unless the folder has one

 private:
  // Throws IoError if the folder, metrics.jsonl or summary.csv is not this run's any more.
  void check_files() const;
  // The same, also if a link now leads out of the folder.
  void check_place() const;

  template <typename Record>
  void append_line(Record record) {
    check_files();
    if (metrics_->size() == 0) record.run = id;
    metrics_->append(record::to_json_line(record));
  }

  RunPaths paths_;
  CheckpointFolder checkpoints_;
  std::optional<FolderLock> lock_;
  std::optional<LineFile> metrics_;
  std::optional<LineFile> summary_;
};

}  // namespace renorm::train
