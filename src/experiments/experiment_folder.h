// The folder of an experiment.
#pragma once

#include <string>

#include "record/results.h"

namespace renorm::experiments {

// Whether `folder` holds results; throws UsageError if it holds anything else.
bool holds_results(const std::string& folder);

// Throws MissingInputError, DataError.
record::Results read_results(const std::string& folder);

// For results without their runs. Throws UsageError if they have figures, which would be lost. Results of an
// experiment that failed before its first step have none.
void check_empty(const record::Results& stored, const std::string& folder);

// Throws OutputError if a file or folder that the experiment of these results writes is a link, which writing
// would follow. `folder` itself may be one.
void check_no_links(const std::string& folder, const record::Results& results);

// Adds to `wanted` the arms and runs that only `stored` has, in the order of arm_names(). Throws UsageError
// if they are different experiments: data, model, length or settings of an arm differ.
void merge_stored(const record::Results& stored, const std::string& folder, record::Results* wanted);

}  // namespace renorm::experiments
