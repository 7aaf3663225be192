#include "train/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"

namespace renorm::train {
namespace {

constexpr const char* kConfig = "config.toml";

// The temporary files of write_atomically() beside the config, and of make_writable_folder().
bool is_temporary(const std::string& name) {
  const auto starts_with = [&name](const std::string& start) {
    return name.compare(0, start.size(), start) == 0;
  };
  return starts_with(std::string(kConfig) + ".tmp.") || starts_with("writable.tmp.");
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
      metrics(folder + "/metrics.jsonl"),
      summary(folder + "/summary.csv"),
      checkpoints(folder + "/checkpoints"),
      lock(folder + "/lock") {}

bool holds_run(const std::string& folder, bool resume) {
  const std::vector<std::string> names = list_folder(folder);
  const auto is_ignored = [](const std::string& name) { return name == "lock" || is_temporary(name); };
  if (std::all_of(names.begin(), names.end(), is_ignored)) return false;
  if (std::find(names.begin(), names.end(), kConfig) == names.end()) {
    throw UsageError(
        fmt::format("--out '{}' holds other files and no run of renorm; choose an empty or new folder",
                    printable(folder)));
  }
  if (!resume) {
    throw UsageError(
        fmt::format("--out '{}' holds a run already; continue it with --resume or choose another folder",
                    printable(folder)));
  }
  return true;
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
  const bool taken = errno == EWOULDBLOCK;
  close(descriptor_);
  descriptor_ = -1;
  // Training works on a file system without locks, too.
  if (!taken) return;
  throw OutputError(fmt::format(
      "another process is training in this folder (it holds '{}'); wait for it or choose another --out",
      printable(path)));
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace renorm::train
