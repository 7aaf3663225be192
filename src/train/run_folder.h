// The folder of a run: what lies where, and who may write there. No torch.
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

// Whether the folder holds a run. Throws UsageError if it holds anything else, or a run without `resume`.
// What a process that was killed before its first step leaves behind counts as nothing.
bool holds_run(const std::string& folder, bool resume);

// Deletes half-written files that a killed process left behind. Only while the lock is held.
void clean_run_folder(const RunPaths& paths);

// One process at a time trains in a folder. The system lets go of the lock when the process ends, however it
// ends.
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
