// renorm report: the HTML report of an experiment or of runs.
#pragma once

#include <string>

#include "record/results.h"

namespace renorm::cli {

constexpr const char* kReportFile = "report.html";  // in the folder of what it reports

// The report of the results of `folder`, with the contact sheet that is stored there or, of built-in data, a
// new one. Throws DataError if the stored one is a link or no PNG file.
std::string report_page(const record::Results& results, const std::string& folder);

}  // namespace renorm::cli
