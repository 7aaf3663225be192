// The charts of a report, each part as HTML; a part without content is empty text.
#pragma once

#include <string>

#include "report/page.h"

namespace renorm::report {

std::string accuracy_section(const Page& page);  // one chart per figure
std::string clipping_section(const Page& page);  // of the arms with Batch Renorm
std::string loss_section(const Page& page);

}  // namespace renorm::report
