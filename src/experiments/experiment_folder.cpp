#include "experiments/experiment_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/foreign_folder.h"
#include "base/text.h"
#include "experiments/experiment.h"
#include "experiments/gather.h"
#include "experiments/reproduce.h"
#include "train/run_folder.h"

namespace renorm::experiments {
namespace {

namespace fs = std::filesystem;

// Files left by processes that were killed early.
bool is_leftover(const std::string& name) {
  return name == kLockFile || name.find(".tmp.") != std::string::npos;
}

[[noreturn]] void refuse(const std::string& folder, const std::string& what, const std::string& stored,
                         const std::string& wanted) {
  throw UsageError(
      fmt::format("--out '{}' has another experiment, with {} {} instead of {}; choose another folder",
                  printable(folder), what, printable(stored), printable(wanted)));
}

void refuse_link(const fs::path& path) {
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(path, error))) return;
  throw OutputError(
      fmt::format("'{}' is a link, and the experiment would write through it; replace it, or link the whole "
                  "folder instead",
                  printable(path.string())));
}

void refuse_links_of_run(const fs::path& folder) {
  refuse_link(folder.string() + ".log");
  const train::RunPaths paths(folder.string());
  for (const std::string& path :
       {paths.config, paths.metrics, paths.summary, paths.checkpoints, paths.lock}) {
    refuse_link(path);
  }
  for (const char* name : {kTrainingSetFile, kBatchStatisticsFile, kLongerFile}) refuse_link(folder / name);
}

void check_same(const record::Results& stored, const std::string& folder, const record::Results& wanted) {
  if (stored.name != wanted.name) refuse(folder, "size", stored.name, wanted.name);
  if (stored.data != wanted.data) refuse(folder, "--data", stored.data, wanted.data);
  if (stored.model != wanted.model) refuse(folder, "--model", stored.model, wanted.model);
  if (stored.steps != wanted.steps) {
    refuse(folder, "--steps", fmt::format("{}", stored.steps), fmt::format("{}", wanted.steps));
  }
}

void add_runs(const record::Arm& stored, record::Arm* arm) {
  for (const record::ArmRun& run : stored.runs) {
    const bool known = std::any_of(arm->runs.begin(), arm->runs.end(),
                                   [&](const record::ArmRun& other) { return other.seed == run.seed; });
    if (!known) arm->runs.push_back(run);
  }
  std::sort(arm->runs.begin(), arm->runs.end(), [](const auto& a, const auto& b) { return a.seed < b.seed; });
}

void add_missing_figures(const record::Results& stored, record::Results* wanted) {
  for (const record::Figure& figure : stored.figures) {
    const bool known = std::any_of(wanted->figures.begin(), wanted->figures.end(),
                                   [&](const record::Figure& other) { return other.id == figure.id; });
    if (!known) wanted->figures.push_back(figure);
  }
}

}  // namespace

bool holds_results(const std::string& folder) {
  const std::vector<std::string> names = list_folder(folder);
  if (std::find(names.begin(), names.end(), kResultsFile) != names.end()) return true;
  if (std::all_of(names.begin(), names.end(), is_leftover)) return false;
  throw UsageError(
      fmt::format("--out '{}' has other files and no experiment of renorm; choose an empty or new folder",
                  printable(folder)));
}

record::Results read_results(const std::string& folder) {
  const std::string file = fmt::format("{}/{}", folder, kResultsFile);
  record::Results results = record::parse_results(read_file_inside(folder, kResultsFile), file);
  const ExperimentKind* kind = find_experiment(results.name);
  if (kind != nullptr) results.reference = kind->reference;
  return results;
}

void check_empty(const record::Results& stored, const std::string& folder) {
  const bool has_figures = std::any_of(stored.arms.begin(), stored.arms.end(),
                                       [](const record::Arm& arm) { return !arm.curve.empty(); });
  if (!has_figures) return;
  throw UsageError(
      fmt::format("--out '{}' has results without their runs, which would be lost; choose another folder",
                  printable(folder)));
}

void check_no_links(const std::string& folder, const record::Results& results) {
  for (const char* name : {kLockFile, kPreviewFile, kDataLog}) refuse_link(fs::path(folder) / name);
  for (const record::Arm& arm : results.arms) {
    for (const record::ArmRun& run : arm.runs) {
      fs::path path = folder;
      for (const fs::path& part : fs::path(run.folder)) refuse_link(path /= part);
      refuse_links_of_run(path);
    }
  }
}

void merge_stored(const record::Results& stored, const std::string& folder, record::Results* wanted) {
  check_same(stored, folder, *wanted);
  for (const record::Arm& arm : stored.arms) {
    const auto same = std::find_if(wanted->arms.begin(), wanted->arms.end(),
                                   [&](const record::Arm& other) { return other.name == arm.name; });
    if (same == wanted->arms.end()) {
      wanted->arms.push_back(arm);
    } else if (same->command != arm.command) {
      refuse(folder, arm.name + " as", arm.command, same->command);
    } else {
      add_runs(arm, &*same);
    }
  }
  const ExperimentKind* kind = find_experiment(wanted->name);
  const std::vector<std::string> order = kind == nullptr ? std::vector<std::string>() : arm_names(*kind);
  const auto place = [&](const record::Arm& arm) {
    return std::find(order.begin(), order.end(), arm.name) - order.begin();
  };
  std::stable_sort(wanted->arms.begin(), wanted->arms.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  add_missing_figures(stored, wanted);
  for (const uint64_t seed : stored.seeds) {
    if (std::find(wanted->seeds.begin(), wanted->seeds.end(), seed) == wanted->seeds.end()) {
      wanted->seeds.push_back(seed);
    }
  }
  std::sort(wanted->seeds.begin(), wanted->seeds.end());
}

}  // namespace renorm::experiments
