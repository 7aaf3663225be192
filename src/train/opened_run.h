// A finished or unfinished run, opened for reading.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "train/run_state.h"
#include "train/weight_average.h"

namespace renorm::train {

struct OpenedRun {
  RunState state;
  std::string checkpoint;  // its folder
  std::shared_ptr<models::Classifier> model;
  std::unique_ptr<WeightAverage> average;  // null if the run keeps none
  std::vector<std::string> notes;          // sentences: newer checkpoints that are damaged, another dtype
};
// `checkpoint` is "last", "best" or "step-N". The data is not opened, and the number of threads is the
// caller's: the run's own gives the bits that the run computed. Throws MissingInputError, DataError.
OpenedRun open_run(const std::string& folder, const std::string& checkpoint);

// A run in bfloat16 computes in float from now on, with a note, if bfloat16 is not useful on this machine.
// Call use_threads() first.
void choose_dtype(OpenedRun* run);

}  // namespace renorm::train
