// The parts of a report that are text, each as HTML; a part without content is empty text.
#pragma once

#include <string>

#include "report/page.h"
#include "report/report.h"

namespace renorm::report {

std::string table_section(const Page& page);
std::string data_section(const ReportExtras& extras);
std::string origin_section(const Page& page);  // commands, versions, seeds, runs

}  // namespace renorm::report
