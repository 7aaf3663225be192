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

enum class FolderContents {
  kNothing,    // no folder, or leftovers of a process killed before it wrote the settings
  kUnstarted,  // the settings of a run without records and checkpoints, and no files of others
  kRun,
  kOther,  // files, but no settings of a run
};
FolderContents contents_of(const RunPaths& paths);

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
