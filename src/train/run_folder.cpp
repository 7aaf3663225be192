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
#include <system_error>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "train/checkpoint.h"

namespace renorm::train {
namespace {

constexpr const char* kConfig = "config.toml";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kSummary = "summary.csv";
constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kLock = "lock";

// The temporary files of write_atomically() beside the config, and of make_writable_folder().
bool is_temporary(const std::string& name) {
  const auto starts_with = [&name](const std::string& start) {
    return name.compare(0, start.size(), start) == 0;
  };
  return starts_with(std::string(kConfig) + ".tmp.") || starts_with("writable.tmp.");
}

// Also if the file does not exist. Every record and every evaluation is a line of metrics.jsonl.
bool is_empty(const std::string& file) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(file, error);
  return error == std::errc::no_such_file_or_directory || (!error && size == 0);
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

FolderContents contents_of(const RunPaths& paths) {
  const std::vector<std::string> names = list_folder(paths.folder);
  const auto has = [&names](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto is_leftover = [](const std::string& name) { return name == kLock || is_temporary(name); };
  if (std::all_of(names.begin(), names.end(), is_leftover)) return FolderContents::kNothing;
  if (!has(kConfig)) return FolderContents::kOther;
  const auto is_own = [&](const std::string& name) {
    return name == kConfig || name == kMetrics || name == kSummary || name == kCheckpoints ||
           is_leftover(name);
  };
  // A run takes the lock before it writes its settings; settings without a lock are somebody's own.
  const bool is_unstarted = has(kLock) && std::all_of(names.begin(), names.end(), is_own) &&
                            is_empty(paths.metrics) && CheckpointFolder(paths.checkpoints).steps().empty();
  return is_unstarted ? FolderContents::kUnstarted : FolderContents::kRun;
}

void clean_run_folder(const RunPaths& paths) {
  clean_folder(paths.folder);
  clean_folder(paths.checkpoints);
}

FolderLock::FolderLock(const std::string& path)
    : descriptor_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) {
    throw OutputError(fmt::format("cannot write '{}': {}", printable(path), std::strerror(errno)));
  }
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  close(descriptor_);
  descriptor_ = -1;
  if (error != EWOULDBLOCK) {
    throw OutputError(
        fmt::format("cannot lock '{}': {}; choose an --out on a file system with locks, such as a local disk",
                    printable(path), std::strerror(error)));
  }
  throw OutputError(fmt::format(
      "another process is training in this folder (it holds '{}'); wait for it or choose another --out",
      printable(path)));
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace renorm::train
