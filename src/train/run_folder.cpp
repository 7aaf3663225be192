#include "train/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "dist/rendezvous.h"
#include "record/metrics.h"
#include "train/checkpoint.h"

namespace renorm::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.toml";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kSummary = "summary.csv";
constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kLock = "lock";

// The temporary files of write_atomically() beside the config, and of make_writable_folder(): "NAME.tmp.1.2".
bool is_temporary(const std::string& name) {
  for (const std::string& start : {std::string(kConfig) + ".tmp.", std::string("writable.tmp.")}) {
    if (name.compare(0, start.size(), start) != 0) continue;
    return name.find_first_not_of("0123456789.", start.size()) == std::string::npos;
  }
  return false;
}

// The folder in which the processes of a launch meet. It is there before rank 0 takes the lock.
bool is_rendezvous(const std::string& name) { return name.rfind(dist::kRendezvousPrefix, 0) == 0; }

// Every record and every evaluation is a line of metrics.jsonl.
bool has_no_records(const RunPaths& paths) {
  const std::string header = record::summary_csv_header();
  const std::string summary = first_line(paths.summary, header);
  return first_line(paths.metrics, record::kRecordStart).empty() &&
         (summary.empty() || summary == header + "\n");
}

void clean_folder(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) {
    if (is_temporary(name)) unlink(fmt::format("{}/{}", folder, name).c_str());
  }
}

}  // namespace

RunPaths::RunPaths(const std::string& folder)
    : folder(folder),
      config(folder + "/" + kConfig),
      metrics(folder + "/" + kMetrics),
      summary(folder + "/" + kSummary),
      checkpoints(folder + "/" + kCheckpoints),
      lock(folder + "/" + kLock) {}

std::string first_line(const std::string& file, const std::string& start) {
  std::error_code error;
  if (!fs::exists(file, error)) return "";
  std::ifstream in(file, std::ios::binary);
  std::string text;
  std::getline(in, text);
  if (!in.eof()) return text + "\n";
  text.erase(text.find_last_not_of('\0') + 1);
  const size_t common = std::min(text.size(), start.size());
  return text.compare(0, common, start, 0, common) == 0 ? "" : text;
}

FolderContents contents_of(const RunPaths& paths) {
  const std::vector<std::string> names = list_folder(paths.folder);
  const auto has = [&names](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto is_leftover = [](const std::string& name) {
    return name == kLock || is_temporary(name) || is_rendezvous(name);
  };
  if (std::all_of(names.begin(), names.end(), is_leftover)) return FolderContents::kNothing;
  if (!has(kConfig)) return FolderContents::kOther;
  const auto is_own = [&](const std::string& name) {
    return name == kConfig || name == kMetrics || name == kSummary || name == kCheckpoints ||
           is_leftover(name);
  };
  // A run takes the lock before it writes its settings; settings without a lock are somebody's own.
  const bool is_unstarted = has(kLock) && std::all_of(names.begin(), names.end(), is_own) &&
                            has_no_records(paths) && CheckpointFolder(paths.checkpoints).steps().empty();
  return is_unstarted ? FolderContents::kUnstarted : FolderContents::kRun;
}

void check_inside(const RunPaths& paths) {
  std::error_code error;
  const fs::path root = fs::canonical(paths.folder, error);
  if (error) return;  // there is no folder yet
  for (const std::string& path :
       {paths.config, paths.metrics, paths.summary, paths.checkpoints, paths.lock}) {
    if (!fs::is_symlink(fs::symlink_status(path, error))) continue;
    const fs::path target = fs::canonical(path, error);
    const bool inside =
        !error && std::mismatch(root.begin(), root.end(), target.begin(), target.end()).first == root.end();
    if (inside) continue;
    throw OutputError(fmt::format(
        "'{}' is a link out of the run's folder, and training would write there; replace it, or link the "
        "whole folder of the run instead",
        printable(path)));
  }
}

void clean_run_folder(const RunPaths& paths, const std::string& meeting_place) {
  clean_folder(paths.folder);
  clean_folder(paths.checkpoints);
  for (const std::string& name : list_folder(paths.folder)) {
    const std::string path = fmt::format("{}/{}", paths.folder, name);
    if (is_rendezvous(name) && path != meeting_place) dist::remove_meeting_place(path);
  }
}

FolderLock::FolderLock(std::string path)
    : path_(std::move(path)), descriptor_(open_file(path_, O_RDWR | O_CREAT)) {
  if (!descriptor_.valid()) throw OutputError(failure("write", path_, errno));
  if (flock(descriptor_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      throw OutputError(fmt::format(
          "another process is training in this folder (it holds '{}'); wait for it or choose another --out",
          printable(path_)));
    }
    throw OutputError(
        fmt::format("cannot lock '{}': {}; choose an --out on a file system with locks, such as a local disk",
                    printable(path_), std::strerror(errno)));
  }
  if (is_open_at(descriptor_.get(), path_)) return;
  throw OutputError(
      fmt::format("'{}' was deleted while this process took it; repeat the command", printable(path_)));
}

void FolderLock::check() const {
  if (is_open_at(descriptor_.get(), path_)) return;
  throw IoError(
      fmt::format("'{}' was deleted or replaced by another process; this process stops and writes nothing "
                  "more, because the folder may belong to another run",
                  printable(path_)));
}

}  // namespace renorm::train
