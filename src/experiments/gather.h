// Collects the figures of an experiment from the folders of its runs.
#pragma once

#include <string>
#include <vector>

#include "record/results.h"

namespace renorm::experiments {

// Files that an experiment adds to the folder of a run.
constexpr const char* kTrainingSetFile = "training-set.json";  // `renorm eval --split train --json`
constexpr const char* kBatchStatisticsFile =
    "batch-statistics.json";                        // `renorm eval --batch-statistics --json`
constexpr const char* kLongerFile = "longer.json";  // `renorm eval --extra-rows N --json`

// How far the run in `folder` is: whether it has done all steps of the arm, and which of the arm's figures
// are still missing. Throws DataError.
struct RunProgress {
  int64_t steps_done = 0;
  double accuracy = -1.0;  // percent, of the last evaluation; -1: none yet
  bool trained = false;
  bool needs_training_set = false;
  bool needs_batch_statistics = false;
  bool needs_longer = false;

  bool finished() const { return trained && !needs_training_set && !needs_batch_statistics && !needs_longer; }
};
RunProgress progress_of(const record::Arm& arm, const std::string& folder);

// Fills in every figure and verdict of `results` from the run folders below `folder`. Runs without a folder
// count as not started. Nothing outside of `folder` is read. Throws DataError, also for a symbolic link below
// `folder`, MissingInputError.
void gather(const std::string& folder, record::Results* results);

// Whether any run below `folder` has recorded something. Results that were copied without their runs have
// none.
bool has_runs(const std::string& folder, const record::Results& results);

// The ends of the paths of folders, as short as possible while still distinct: "seed-1", "ARM/seed-1".
std::vector<std::string> short_names(const std::vector<std::string>& folders);

// Folders of `renorm train` as one experiment in one figure, with one arm per folder, named after it.
// Throws MissingInputError for a folder without a run, DataError.
record::Results results_of_runs(const std::vector<std::string>& folders);

}  // namespace renorm::experiments
