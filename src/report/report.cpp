#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "report/charts.h"
#include "report/claims.h"
#include "report/compare.h"
#include "report/figures.h"
#include "report/format.h"
#include "report/page.h"
#include "report/tables.h"
#include "report/thin.h"
#include "report/why.h"

namespace renorm::report {

// Made from files by renorm_embed.
extern const std::string_view kDygraphsLicence;
extern const std::string_view kDygraphsCss;
extern const std::string_view kDygraphsJs;
extern const std::string_view kReportCss;
extern const std::string_view kSeriesJs;
extern const std::string_view kReportJs;
extern const std::string_view kPrintJs;

namespace {

using record::Arm;
using record::Results;

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; base-uri "
    "'none'; "
    "form-action 'none'";

constexpr const char* kHeadEnd =
    "</style>\n<noscript><style>.chart, .needs-script { display: none }</style></noscript>\n</head>\n";

// With the charting library, a contact sheet of 600 kB, which base64 makes a third longer, and the images of
// the panel a page stays below 5 MB.
constexpr size_t kMaxJsonBytes = 3'900'000;
constexpr size_t kMinPoints = 64;  // of a curve, for any number of arms

struct Progress {
  size_t runs = 0;
  size_t finished = 0;
  double steps = 0.0;
  double steps_done = 0.0;
};

// Runs that have not started may be missing from an arm; the number of seeds includes them.
Progress progress_of(const Results& results) {
  Progress progress;
  for (const Arm& arm : results.arms) {
    const size_t runs = std::max(arm.runs.size(), results.seeds.size());
    progress.runs += runs;
    progress.steps += static_cast<double>(runs) * static_cast<double>(arm.steps);
    for (const record::ArmRun& run : arm.runs) {
      progress.finished += run.finished ? 1 : 0;
      progress.steps_done +=
          static_cast<double>(run.finished ? arm.steps : std::min(run.steps_done, arm.steps));
    }
  }
  return progress;
}

std::string size_of(const Results& results) {
  std::string text;
  if (results.arms.size() > 1) text += counted(results.arms.size(), "arm") + ", ";
  if (results.seeds.size() > 1) text += counted(results.seeds.size(), "seed") + ", ";
  return text + counted(static_cast<size_t>(results.steps), "step") + (text.empty() ? "" : " each");
}

std::string state(const Results& results) {
  if (results.finished) return fmt::format("Finished: {}.", size_of(results));
  const Progress progress = progress_of(results);
  if (progress.steps_done == 0.0) return fmt::format("Not started: {}.", size_of(results));
  const double share = progress.steps > 0.0 ? 100.0 * progress.steps_done / progress.steps : 0.0;
  // Rounded down: 100 % would be finished.
  return fmt::format("Not finished: {} of {} done, {} % of all steps.", progress.finished,
                     counted(progress.runs, "run"), static_cast<int>(share));
}

// The claims in one line.
std::string tally_line(const std::vector<record::Claim>& claims, const std::string& whose) {
  if (claims.empty()) return "";
  return fmt::format("<p class=\"tally\"><a href=\"#claims\">{}{}</a></p>\n", whose, tally(claims));
}

std::string state_line(const Results& results, const std::string& whose) {
  return fmt::format("<p class=\"state\">{}{}</p>\n", whose, state(results));
}

std::string about(const Results& results) {
  std::string text;
  if (!results.data.empty()) text += fmt::format("data <code>{}</code>", escaped(results.data));
  if (!results.model.empty()) {
    text += fmt::format("{}model <code>{}</code>", text.empty() ? "" : " · ", escaped(results.model));
  }
  return text.empty() ? "" : fmt::format("<p class=\"small\">{}</p>\n", text);
}

std::string title_of(const Results& results) {
  const std::string& text = results.title.empty() ? results.name : results.title;
  return text.empty() ? "Report of an experiment" : escaped(text);
}

// A report is recognized by these two.
const std::string kStart = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
const std::string kResultsTag = "<script type=\"application/json\" id=\"results\">";

std::string head(const Results& results) {
  std::string text = fmt::format(
      "{}"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" "
      "href=\"data:,\">\n<title>{}</title>\n<!--\n",
      kStart, kPolicy, title_of(results));
  for (const std::string_view part : {kDygraphsLicence, std::string_view("-->\n<style>\n"), kDygraphsCss,
                                      kReportCss, std::string_view(kHeadEnd)}) {
    text += part;
  }
  return text;
}

// Some builds of dygraphs warn about every point outside the axes; our charts have such points on purpose.
constexpr std::string_view kQuietly = "(function (console) {\n";
constexpr std::string_view kQuietlyEnd = "\n})(Object.assign({}, window.console, { warn() {} }));\n";

// Fewer points the more arms there are.
std::string fitting_json(const Results& results) {
  for (size_t max_points = kMaxPoints;; max_points /= 2) {
    std::string json = json_for_script(thinned(results, max_points));
    if (json.size() <= kMaxJsonBytes || max_points <= kMinPoints) return json;
  }
}

std::string scripts(const Results& results) {
  std::string text = kResultsTag + fitting_json(results) + "</script>\n<script>\n";
  for (const std::string_view part :
       {kQuietly, kDygraphsJs, kQuietlyEnd, std::string_view("</script>\n<script>\n"), kSeriesJs, kReportJs,
        kPrintJs, std::string_view("</script>\n")}) {
    text += part;
  }
  return text;
}

// `comparison` is a section before the table.
std::string page_of(const Results& results, const std::string& below_title, const std::string& comparison,
                    const ReportExtras& extras) {
  const Page page(results);
  return head(results) +
         fmt::format("<body>\n<main>\n<header>\n<h1>{}</h1>\n{}</header>\n", title_of(results), below_title) +
         "<noscript><p class=\"empty\">Curves need JavaScript; the rest does not.</p></noscript>\n" +
         figures_section(page) + why_section(extras) + comparison + table_section(page) +
         claims_section(page) + clipping_section(page) + loss_section(page) + data_section(extras) +
         origin_section(page) + "</main>\n" + scripts(results) + "</body>\n</html>\n";
}

}  // namespace

bool is_report(const std::string& text) {
  return text.rfind(kStart, 0) == 0 && text.find(kResultsTag) != std::string::npos;
}

std::string html(const Results& results, const ReportExtras& extras) {
  const std::string below_title = tally_line(results.claims, "") + state_line(results, "") + about(results);
  return page_of(results, below_title, "", extras);
}

std::string comparison_html(const std::vector<NamedResults>& folders, const ReportExtras& extras) {
  const Results results = merged(folders);
  std::string below_title;
  for (const NamedResults& folder : folders) {
    below_title += tally_line(folder.results.claims, escaped(folder.name) + ": ");
  }
  for (const NamedResults& folder : folders) {
    below_title += state_line(folder.results, escaped(folder.name) + ": ");
  }
  return page_of(results, below_title, comparison_section(Page(results), folders), extras);
}

}  // namespace renorm::report
