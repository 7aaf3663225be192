// The start of a run of several processes: all must have been asked for the same, and start from the same.
#pragma once

#include <string>

#include "data/dataset.h"
#include "dist/group.h"
#include "train/config.h"
#include "train/run.h"
#include "train/run_state.h"

namespace renorm::train {

// What a run starts from.
struct Start {
  Config config;           // as its folder or its flags have it, not resolved
  bool continues = false;  // a run that the folder has
  RunState state;          // of the checkpoint; step 0: none
};

// Rank 0's.
Start shared_start(const Start& start, dist::Group& group);

// Throw UsageError in all processes if one has other versions of the program, other settings (threads may
// differ) or other data than rank 0.
void check_same_request(const RunRequest& request, dist::Group& group);
// Of the data, what its description has and a sample of the images are compared.
void check_same_data(const data::Dataset& dataset, dist::Group& group);

}  // namespace renorm::train
