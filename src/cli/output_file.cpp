#include "cli/output_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <system_error>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "experiments/reproduce.h"
#include "record/json.h"
#include "record/results.h"
#include "train/checkpoint.h"
#include "train/run_folder.h"

namespace renorm::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxBytes = int64_t{1} << 30;

// Whether the folder has the settings or a checkpoint of a run.
bool holds_run(const train::RunPaths& paths) try {
  std::error_code error;
  return fs::exists(paths.config, error) || !train::CheckpointFolder(paths.checkpoints).steps().empty();
} catch (const std::runtime_error&) {
  return false;  // of another user
}

// Whether the folder holds a run, and `target` is one of the run's files or inside of its checkpoints. Names
// of the run may be links; `target` has none.
bool is_of_run(const fs::path& folder, const fs::path& target) {
  const train::RunPaths paths(folder.string());
  if (!holds_run(paths)) return false;
  const std::string names[] = {paths.config, paths.metrics, paths.summary, paths.checkpoints, paths.lock};
  return std::any_of(std::begin(names), std::end(names), [&](const std::string& name) {
    std::error_code error;
    const fs::path own = fs::weakly_canonical(final_path(name, Links::kFollow), error);
    return !error && std::mismatch(own.begin(), own.end(), target.begin(), target.end()).first == own.end();
  });
}

bool is_readable_as(const std::string& path, const std::function<bool(const std::string& bytes)>& accepts) {
  try {
    return accepts(read_file(path, kMaxBytes));
  } catch (const MissingInputError&) {
    return false;
  } catch (const DataError&) {
    return false;
  }
}

bool is_results(const std::string& path) {
  if (fs::path(path).filename() != experiments::kResultsFile) return false;
  return is_readable_as(path, [&](const std::string& bytes) {
    record::parse_results(bytes, path);
    return true;
  });
}

}  // namespace

void check_not_of_run(const std::string& path, const std::string& flag) {
  // A path that leads to nothing stays relative, and its last link is not resolved, without these.
  std::error_code error;
  const fs::path target = fs::weakly_canonical(fs::absolute(final_path(path, Links::kFollow), error), error);
  if (error) return;  // check_writable() reports it
  for (fs::path folder : {target, fs::absolute(path, error)}) {
    while (folder.has_relative_path()) {
      folder = folder.parent_path();
      if (!is_of_run(folder, target)) continue;
      throw UsageError(fmt::format("'{}' belongs to the run in '{}' and is never replaced; choose another {}",
                                   printable(path), printable(folder.string()), flag));
    }
  }
  if (!is_results(target.string())) return;
  throw UsageError(
      fmt::format("'{}' has the results of an experiment and is never replaced; choose another {}",
                  printable(path), flag));
}

bool is_replaceable(const std::string& path,
                    const std::function<bool(const std::string& bytes)>& is_earlier_output) {
  std::error_code error;
  if (!fs::exists(path, error) || fs::is_empty(path, error)) return true;
  return is_readable_as(path, is_earlier_output);
}

void check_output(const std::string& path, const std::string& flag, bool force,
                  const std::function<bool(const std::string& bytes)>& is_earlier_output) {
  check_not_of_run(path, flag);
  check_writable(path);
  if (force || is_replaceable(path, is_earlier_output)) return;
  throw UsageError(fmt::format(
      "'{}' exists and is not an earlier output of this command; choose another {}, or replace it "
      "with --force",
      printable(path), flag));
}

void check_figures_output(const std::string& path, bool force, std::initializer_list<const char*> entries) {
  if (path.empty()) return;
  check_output(path, "--json", force, [&](const std::string& bytes) {
    const nlohmann::json figures = record::parse_json(bytes, path);
    return std::all_of(entries.begin(), entries.end(),
                       [&](const char* entry) { return figures.contains(entry); });
  });
}

}  // namespace renorm::cli
