// The results of an experiment as one HTML file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "record/results.h"

namespace renorm::report {

// Why a net can learn to use the other images of a minibatch, in images of data with decoys, each as the
// bytes of a small PNG file.
struct WhyPanel {
  std::string data;         // spec
  std::string image_png;    // shows two characters
  std::string meant_png;    // the one of its class
  std::string decoy_png;    // the other
  std::string partner_png;  // another image of its class
};

// Content that is not part of the results. Without bytes of a PNG file there is no section on the data; with
// more than 600 kB the page may be larger than 5 MB.
struct ReportExtras {
  std::string contact_sheet_png;
  std::string contact_sheet_caption;
  std::optional<WhyPanel> why{};
};

// A self-contained page in UTF-8: charts, styles and data are inside, and the browser is forbidden to fetch
// anything. In this order: the verdicts in one line, charts of the test accuracy, why they are so, the table,
// the claims, charts of the training. All but curves is readable without JavaScript. All text of the results
// is escaped. Results may be at any stage, also without arms or figures; a missing value is shown as "–". The
// paper is mentioned only if an arm has one of its figures. Long curves are thinned (report/thin.h), so that
// a page has at most 5 MB.
std::string html(const record::Results& results, const ReportExtras& extras);

// The results of a folder, under a name that is its own.
struct NamedResults {
  std::string name;
  record::Results results;
};

// The same page of at least two folders that have the same measure: their arms in shared charts, and a table
// of the differences from the first folder.
std::string comparison_html(const std::vector<NamedResults>& folders, const ReportExtras& extras);

// Whether `text` is a page of either kind, also of an earlier version.
bool is_report(const std::string& text);

}  // namespace renorm::report
