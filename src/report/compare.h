// Results of several folders side by side.
#pragma once

#include <string>
#include <vector>

#include "record/results.h"
#include "report/page.h"
#include "report/report.h"

namespace renorm::report {

// All arms as those of one experiment: arms of one name follow each other, in the order of the folders, and
// names, labels, series and claims end with the name of their folder. A figure that several folders have is
// that of the first one, and so are the paper's figures. What the folders do not share is left out or listed
// by folder; steps to a reference are left out.
record::Results merged(const std::vector<NamedResults>& folders);

// What each folder is, and a table with the differences of the test accuracies from those of the first
// folder. As HTML. `page` is that of the merged results.
std::string comparison_section(const Page& page, const std::vector<NamedResults>& folders);

}  // namespace renorm::report
