// The folder of a run: its files and its lock.
#pragma once

#include <string>

#include "base/descriptor.h"

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

// The first line of the file, with its newline. Empty if there is no file, or if it has no newline and begins
// with `start`: a process that is killed, or a loss of power, leaves a line of its own cut short or followed
// by zeros.
std::string first_line(const std::string& file, const std::string& start);

// Throws OutputError if a file of the run or its folder of checkpoints is a link out of the run's folder.
void check_inside(const RunPaths& paths);

// Deletes incomplete files of killed processes, and the places where they met except `meeting_place`. The
// caller holds the lock.
void clean_run_folder(const RunPaths& paths, const std::string& meeting_place = "");

// One process at a time trains in a folder. The system releases the lock when the process ends, for whatever
// reason.
class FolderLock {
 public:
  explicit FolderLock(std::string path);  // throws OutputError

  // Throws IoError unless the file at the path is the one that is held. Otherwise the folder or the lock was
  // deleted, and another process may work in the folder. To be called before each write.
  void check() const;

 private:
  std::string path_;
  Descriptor descriptor_;
};

}  // namespace renorm::train
