// The results of an experiment as one HTML file.
#pragma once

#include <string>

#include "record/results.h"

namespace renorm::report {

// Content that is not part of the results. Without bytes of a PNG file there is no section on the data; with
// more than 600 kB the page may be larger than 5 MB.
struct ReportExtras {
  std::string contact_sheet_png;
  std::string contact_sheet_caption;
};

// A self-contained page in UTF-8: charts, styles and data are inside, and the browser is forbidden to fetch
// anything. In this order: the verdicts in one line, charts of the test accuracy, the table, the claims,
// charts of the training. All but curves is readable without JavaScript. All text of the results is escaped.
// Results may be at any stage, also without arms or figures; a missing value is shown as "–". The paper is
// mentioned only if an arm has one of its figures. Long curves are thinned (report/thin.h), so that a page
// has at most 5 MB.
std::string html(const record::Results& results, const ReportExtras& extras);

// Whether `text` is a page of html(), also of an earlier version.
bool is_report(const std::string& text);

}  // namespace renorm::report
