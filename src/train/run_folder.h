// The folder of a run: its files and its lock.
#pragma once

#include <string>

namespace renorm::train {

struct RunPaths {
  explicit RunPaths(const std::string& folder);

  std::string folder;
  std::string config;
  std::string metrics;
  std::string summary;
  std::string checkpoints;
  std::string lock;
};

// Whether the folder holds a run. Throws UsageError if it holds other files, or a run without `resume`.
// Leftovers of a process killed before its first step are ignored.
bool holds_run(const std::string& folder, bool resume);

// Deletes incomplete files of killed processes. The caller holds the lock.
void clean_run_folder(const RunPaths& paths);

// One process at a time trains in a folder. The system releases the lock when the process ends, for whatever
// reason.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path);  // throws OutputError
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace renorm::train
