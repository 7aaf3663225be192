// What the runs of an experiment have left in their folders so far. No torch.
#pragma once

#include <string>
#include <vector>

#include "record/results.h"

namespace renorm::experiments {

// Files that an experiment puts beside those of a run.
constexpr const char* kTrainingSetFile = "training-set.json";  // `renorm eval --split train --json`
constexpr const char* kBatchStatisticsFile =
    "batch-statistics.json";  // `renorm eval --batch-statistics --json`

// How far the run in `folder` is, for an arm of `arm.steps` steps: whether it is trained, and whether each
// figure that the arm is to have is there. Throws DataError.
struct RunProgress {
  int64_t steps_done = 0;
  double accuracy = -1.0;  // percent, of the last evaluation; -1: none yet
  bool trained = false;
  bool needs_training_set = false;
  bool needs_batch_statistics = false;

  bool finished() const { return trained && !needs_training_set && !needs_batch_statistics; }
};
RunProgress progress_of(const record::Arm& arm, const std::string& folder);

// Fills in every figure of `results` from the run folders below `folder`, with verdicts. Runs whose folder is
// not there count as not started. Throws DataError, MissingInputError.
void gather(const std::string& folder, record::Results* results);

// Whether any of the runs has a folder below `folder`: results that were copied without their runs have none.
bool has_runs(const std::string& folder, const record::Results& results);

// The folders of `renorm train` as one experiment: an arm each, named after its folder, in one figure.
// Throws MissingInputError for a folder without a run, DataError.
record::Results results_of_runs(const std::vector<std::string>& folders);

}  // namespace renorm::experiments
