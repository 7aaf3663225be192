// The claims of a report and the line that sums them up.
#pragma once

#include <string>
#include <vector>

#include "record/results.h"
#include "report/page.h"

namespace renorm::report {

// "7 of 10 claims hold, 1 does not hold, 2 are not resolved."; "" without claims.
std::string tally(const std::vector<record::Claim>& claims);

// As HTML; "" without claims.
std::string claims_section(const Page& page);

}  // namespace renorm::report
