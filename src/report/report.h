// What an experiment found out, as one HTML file for people.
#pragma once

#include <string>

#include "record/results.h"

namespace renorm::report {

// What the results do not hold. Without bytes of a PNG file there is no section for the data.
struct ReportExtras {
  std::string contact_sheet_png;
  std::string contact_sheet_caption;
};

// A whole page in UTF-8 that needs nothing but itself: charts, styles and data are inside, and it forbids the
// browser to fetch anything. Claims and tables are readable without JavaScript. Text of the results is
// escaped wherever it stands. Takes results at any stage, also without arms or figures; where there is no
// value yet it says "–". An experiment without any figure of the paper does not mention the paper.
std::string html(const record::Results& results, const ReportExtras& extras);

}  // namespace renorm::report
