#include "cli/report_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <thread>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "experiments/children.h"
#include "experiments/experiment_folder.h"
#include "experiments/gather.h"
#include "experiments/reproduce.h"
#include "report/report.h"

namespace renorm::cli {
namespace {

constexpr int64_t kLargestPicture = 64 << 20;

bool holds_experiment(const std::string& folder) {
  return std::filesystem::exists(fmt::format("{}/{}", folder, experiments::kResultsFile));
}

// The bytes of a contact sheet made now in a folder of its own; "" if that fails, which is no reason for no
// report.
std::string new_preview(const std::string& data) {
  const char* temporary = std::getenv("TMPDIR");
  std::string folder = fmt::format("{}/renorm-XXXXXX", temporary == nullptr ? "/tmp" : temporary);
  if (mkdtemp(folder.data()) == nullptr) return "";
  std::string bytes;
  try {
    experiments::Child child({"data", data, "--preview", folder + "/data.png"}, folder + "/log");
    int code = 0;
    while (!child.ended(&code)) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (code == 0) bytes = read_file(folder + "/data.png", kLargestPicture);
  } catch (const std::exception&) {
    bytes.clear();
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return bytes;
}

std::string preview(const std::string& folder, const std::string& data) {
  const std::string stored = fmt::format("{}/{}", folder, experiments::kPreviewFile);
  if (std::filesystem::exists(stored)) return read_file(stored, kLargestPicture);
  return new_preview(data);
}

}  // namespace

record::Results open_results(const std::vector<std::string>& folders) {
  if (std::none_of(folders.begin(), folders.end(), holds_experiment)) {
    return experiments::results_of_runs(folders);
  }
  if (folders.size() > 1) {
    throw UsageError(
        "a report is of one folder of 'renorm reproduce' or of any number of folders of 'renorm train'");
  }
  record::Results results = experiments::read_results(folders.front());
  if (experiments::has_runs(folders.front(), results)) experiments::gather(folders.front(), &results);
  return results;
}

void write_report(const record::Results& results, const std::string& folder, const std::string& file) {
  report::ReportExtras extras;
  extras.contact_sheet_png = preview(folder, results.data);
  extras.contact_sheet_caption = fmt::format("{}: a row is a class", results.data);
  write_atomically(file, report::html(results, extras));
}

}  // namespace renorm::cli
