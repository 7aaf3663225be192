// The folder of an experiment. No torch.
#pragma once

#include <string>

#include "record/results.h"

namespace renorm::experiments {

// Whether `folder` holds results; throws UsageError if it holds anything else.
bool holds_results(const std::string& folder);

// Throws MissingInputError, DataError.
record::Results read_results(const std::string& folder);

// Whether anything was found out that the results hold or the folder has runs of. An experiment that failed
// before its first step is no other experiment.
bool has_started(const std::string& folder, const record::Results& stored);

// Adds to `wanted` the arms and runs that only `stored` has, in the order of arm_names(). Throws UsageError
// if the two are not of one experiment: data, model, length or settings of an arm differ.
void merge_stored(const record::Results& stored, const std::string& folder, record::Results* wanted);

}  // namespace renorm::experiments
