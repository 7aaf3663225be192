// The panel that explains in one picture what a net can read from the other images of a minibatch.
#pragma once

#include <string>

#include "report/report.h"

namespace renorm::report {

// As HTML; "" without images for it.
std::string why_section(const ReportExtras& extras);

}  // namespace renorm::report
