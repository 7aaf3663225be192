// The report of an experiment or of runs as a file.
#pragma once

#include <string>
#include <vector>

#include "record/results.h"

namespace renorm::cli {

// The results in `folders`: one folder of `renorm reproduce`, brought up to date from its runs if they are
// there, or any number of folders of `renorm train`. Throws UsageError, MissingInputError, DataError.
record::Results open_results(const std::vector<std::string>& folders);

// Writes the report of the results of `folder`, with the picture of the data that lies there or, if the data
// can be read now, a new one. Throws IoError.
void write_report(const record::Results& results, const std::string& folder, const std::string& file);

}  // namespace renorm::cli
