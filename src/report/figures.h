// The figures of the results: curves over the steps, lines over a setting or heat maps.
#pragma once

#include <string>

#include "report/page.h"

namespace renorm::report {

// As HTML; "" without figures.
std::string figures_section(const Page& page);

}  // namespace renorm::report
