#include "cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/foreign_folder.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/contact_sheet.h"
#include "cli/help.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "data/image_decode.h"
#include "experiments/experiment_folder.h"
#include "experiments/gather.h"
#include "experiments/reproduce.h"
#include "report/report.h"

namespace renorm::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  renorm report runs/reproduce-quick
  renorm report runs/iid runs/pairs --out comparison.html

The report is one file that needs no other files and no network. Runs may be unfinished.
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

// The results in `folders`: one folder of `renorm reproduce`, brought up to date from its runs if they are
// there, or any number of folders of `renorm train`. Throws UsageError, MissingInputError, DataError.
record::Results open_results(const std::vector<std::string>& folders) {
  if (std::none_of(folders.begin(), folders.end(), holds_experiment)) {
    return experiments::results_of_runs(folders);
  }
  if (folders.size() > 1) {
    throw UsageError(
        "a report takes one folder of 'renorm reproduce' or any number of folders of 'renorm train'");
  }
  record::Results results = experiments::read_results(folders.front());
  if (experiments::has_runs(folders.front(), results)) experiments::gather(folders.front(), &results);
  return results;
}

void run(const ReportOptions& options) {
  if (options.folders.empty()) {
    throw UsageError("'renorm report' needs DIR, a folder of 'renorm reproduce' or of 'renorm train'");
  }
  const std::string file = options.out.empty() ? options.folders.front() + "/report.html" : options.out;
  const record::Results results = open_results(options.folders);
  // A link inside a folder of a stranger is not followed, one that the user gives is.
  const Links links = options.out.empty() ? Links::kReplace : Links::kFollow;
  if (links == Links::kReplace && std::filesystem::is_symlink(file)) {
    check_writable(file, links);
  } else {
    check_output(file, "--out", options.force, report::is_report);
  }
  write_report(results, options.folders.front(), file, links);
  fmt::print("report         {}\n", printable(file));
}

}  // namespace

void write_report(const record::Results& results, const std::string& folder, const std::string& file,
                  Links links) {
  report::ReportExtras extras;
  extras.contact_sheet_png = contact_sheet(folder, results.data);
  extras.contact_sheet_caption = fmt::format("{}: one row per class", results.data);
  write_atomically(file, report::html(results, extras), links);
}

Command add_report(CLI::App& program) {
  CLI::App* app = program.add_subcommand("report", "Write the HTML report of an experiment or of runs");
  const auto options = std::make_shared<ReportOptions>();
  app->add_option("DIR", options->folders, "folder of 'renorm reproduce', or folders of 'renorm train'");
  app->add_option("--out", options->out, "the file; without it, report.html in the first DIR")
      ->type_name("FILE");
  app->add_flag("--force", options->force, "replace a file that is no report");
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
