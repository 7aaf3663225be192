// renorm report: the HTML report of an experiment or of runs.
#pragma once

#include <string>

#include "base/files.h"
#include "record/results.h"

namespace renorm::cli {

constexpr const char* kReportFile = "report.html";  // in the folder of what it reports

// Writes the report of the results of `folder`, with the contact sheet that is stored there or, of built-in
// data, a new one. Throws DataError if the stored one is a link or no PNG file, IoError.
void write_report(const record::Results& results, const std::string& folder, const std::string& file,
                  Links links);

}  // namespace renorm::cli
