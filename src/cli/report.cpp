#include "cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "base/errors.h"
#include "base/foreign_folder.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/contact_sheet.h"
#include "cli/help.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/why_panel.h"
#include "data/image_decode.h"
#include "experiments/experiment_folder.h"
#include "experiments/gather.h"
#include "experiments/reproduce.h"
#include "report/report.h"

namespace renorm::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  renorm report runs/reproduce-quick
  renorm report runs/reproduce-quick runs/other-seeds --out comparison.html
  renorm report runs/iid runs/pairs --out runs.html

The report is one file that needs no other files and no network. Runs may be unfinished. Several folders of
'renorm reproduce' are compared: arms of the same name share their charts, and a table has the differences
from the first folder. Folders of 'renorm train' become the arms of one report.
)";

struct ReportOptions {
  std::vector<std::string> folders;
  std::string out;
  bool force = false;
};

bool holds_experiment(const std::string& folder) {
  return std::filesystem::exists(fmt::format("{}/{}", folder, experiments::kResultsFile));
}

// The contact sheet in the folder, which may come from a stranger. Throws DataError unless it is a PNG file.
std::string stored_sheet(const std::string& folder) {
  std::string bytes = read_file_inside(folder, experiments::kPreviewFile, experiments::kMaxPreviewBytes);
  if (data::is_png(bytes)) return bytes;
  throw DataError(fmt::format("{}/{}: not a PNG file", printable(folder), experiments::kPreviewFile));
}

bool is_too_large(const std::filesystem::path& sheet) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(sheet, error))) return false;
  const std::uintmax_t bytes = std::filesystem::file_size(sheet, error);
  return !error && bytes > static_cast<std::uintmax_t>(experiments::kMaxPreviewBytes);
}

// "", with a note.
std::string no_sheet(const std::string& sheet) {
  Progress().print(fmt::format("note: {} has more than {} bytes, so the report shows no examples of the data",
                               printable(sheet), experiments::kMaxPreviewBytes));
  return "";
}

// A new one of built-in data; "" for other data, which are not opened, because the results may name any
// folder of the reader.
std::string new_sheet(const std::string& data) {
  SheetSize size;
  size.max_bytes = experiments::kMaxPreviewBytes;
  try {
    std::string sheet = built_in_contact_sheet_png(data, size);
    const bool fits = static_cast<int64_t>(sheet.size()) <= size.max_bytes;
    return fits ? sheet : no_sheet(fmt::format("an image of '{}'", data));
  } catch (const UsageError&) {
    return "";  // data of another version
  }
}

// The contact sheet in the folder or, of built-in data, a new one. "" if neither is there, or if the report
// would be too large: a report needs none.
std::string contact_sheet(const std::string& folder, const std::string& data) {
  std::error_code error;
  const std::filesystem::path stored = std::filesystem::path(folder) / experiments::kPreviewFile;
  if (!std::filesystem::exists(std::filesystem::symlink_status(stored, error))) return new_sheet(data);
  return is_too_large(stored) ? no_sheet(fmt::format("'{}'", stored.string())) : stored_sheet(folder);
}

// Of the first data with decoys.
std::optional<report::WhyPanel> why_panel_of(const record::Results& results) {
  std::vector<std::string> specs = {results.data};
  for (const record::Figure& figure : results.figures) {
    if (figure.data) specs.push_back(*figure.data);
  }
  for (const std::string& spec : specs) {
    if (std::optional<report::WhyPanel> panel = why_panel(spec)) return panel;
  }
  return std::nullopt;
}

// The results of a folder of `renorm reproduce`, brought up to date from its runs if they are there.
record::Results open_experiment(const std::string& folder) {
  record::Results results = experiments::read_results(folder);
  if (experiments::has_runs(folder, results)) experiments::gather(folder, &results);
  return results;
}

std::string measure_of(const record::Results& results) { return results.measure.value_or("test accuracy"); }

// Throws UsageError if the folders cannot be compared.
std::vector<report::NamedResults> open_experiments(const std::vector<std::string>& folders) {
  const std::vector<std::string> names = experiments::short_names(folders);
  std::vector<report::NamedResults> opened;
  for (size_t i = 0; i < folders.size(); ++i) {
    if (std::count(names.begin(), names.end(), names[i]) > 1) {
      throw UsageError(
          fmt::format("'{}' is given twice; a report compares different folders", printable(folders[i])));
    }
    opened.push_back({names[i], open_experiment(folders[i])});
    const std::string first = measure_of(opened.front().results), own = measure_of(opened.back().results);
    if (own == first) continue;
    throw UsageError(
        fmt::format("'{}' has {} and '{}' has {}; a report compares folders with the same measure",
                    printable(folders.front()), printable(first), printable(folders[i]), printable(own)));
  }
  return opened;
}

// Throws UsageError for folders of both kinds, MissingInputError for one without anything to report.
bool are_experiments(const std::vector<std::string>& folders) {
  const auto other = std::find_if_not(folders.begin(), folders.end(), holds_experiment);
  if (other == folders.end()) return true;
  if (std::none_of(folders.begin(), folders.end(), holds_experiment)) return false;
  experiments::results_of_runs({*other});
  throw UsageError(fmt::format(
      "a report takes folders of 'renorm reproduce' or folders of 'renorm train', not both; '{}' is "
      "one of 'renorm train'",
      printable(*other)));
}

report::ReportExtras extras_of(const record::Results& results, const std::string& folder) {
  report::ReportExtras extras;
  extras.contact_sheet_png = contact_sheet(folder, results.data);
  extras.contact_sheet_caption = fmt::format("{}: one row per class", results.data);
  extras.why = why_panel_of(results);
  return extras;
}

std::string comparison_of(const std::vector<std::string>& folders) {
  const std::vector<report::NamedResults> opened = open_experiments(folders);
  const record::Results& first = opened.front().results;
  report::ReportExtras extras;
  for (const report::NamedResults& folder : opened) {
    if (!extras.why) extras.why = why_panel_of(folder.results);
  }
  const bool same_data = std::all_of(opened.begin(), opened.end(), [&](const report::NamedResults& folder) {
    return folder.results.data == first.data;
  });
  if (same_data) extras = extras_of(first, folders.front());
  return report::comparison_html(opened, extras);
}

// The page of the folders.
std::string page_of(const std::vector<std::string>& folders) {
  const std::string& first = folders.front();
  if (!are_experiments(folders)) {
    const record::Results results = experiments::results_of_runs(folders);
    return report::html(results, extras_of(results, first));
  }
  if (folders.size() > 1) return comparison_of(folders);
  const record::Results results = open_experiment(first);
  return report::html(results, extras_of(results, first));
}

std::string file_of(const ReportOptions& options) {
  if (!options.out.empty()) return options.out;
  const bool compares = options.folders.size() > 1 && holds_experiment(options.folders.front());
  return fmt::format("{}/{}", options.folders.front(), compares ? "comparison.html" : kReportFile);
}

void run(const ReportOptions& options) {
  if (options.folders.empty()) {
    throw UsageError("'renorm report' needs DIR, a folder of 'renorm reproduce' or of 'renorm train'");
  }
  const std::string file = file_of(options);
  const std::string page = page_of(options.folders);
  // A link inside a folder of a stranger is not followed, one that the user gives is.
  const Links links = options.out.empty() ? Links::kReplace : Links::kFollow;
  if (links == Links::kReplace && std::filesystem::is_symlink(file)) {
    check_writable(file, links);
  } else {
    check_output(file, "--out", options.force, report::is_report);
  }
  write_atomically(file, page, links);
  fmt::print("report         {}\n", printable(file));
}

}  // namespace

std::string report_page(const record::Results& results, const std::string& folder) {
  return report::html(results, extras_of(results, folder));
}

Command add_report(CLI::App& program) {
  CLI::App* app = program.add_subcommand("report", "Write the HTML report of an experiment or of runs");
  const auto options = std::make_shared<ReportOptions>();
  app->add_option("DIR", options->folders, "folders of 'renorm reproduce', or folders of 'renorm train'");
  app->add_option("--out", options->out,
                  "the file; without it, report.html in DIR or, of several folders of 'renorm reproduce', "
                  "comparison.html in the first")
      ->type_name("FILE");
  app->add_flag("--force", options->force, "replace a file that is no report");
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
