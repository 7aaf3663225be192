// renorm report: the HTML report of an experiment or of runs.
#pragma once

#include <string>

#include "record/results.h"

namespace renorm::cli {

// Writes the report of the results of `folder`, with the contact sheet that is stored there or, if the data
// can be read now, a new one. Throws IoError.
void write_report(const record::Results& results, const std::string& folder, const std::string& file);

}  // namespace renorm::cli
