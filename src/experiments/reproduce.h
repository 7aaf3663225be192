// Runs an experiment: its arms side by side, each `renorm train` in its own process.
//   OUT/results.json        every figure, rewritten whenever a run ends
//   OUT/data.png            examples of the data
//   OUT/runs/ARM/seed-N     folders of `renorm train`, with the additional evaluations of the arm
//   OUT/runs/ARM/seed-N.log output of that process
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "experiments/experiment.h"
#include "record/results.h"
#include "train/run_folder.h"

namespace renorm::experiments {

constexpr const char* kResultsFile = "results.json";
constexpr const char* kPreviewFile = "data.png";
constexpr const char* kLockFile = "lock";
// Output of the process that prepares data, deleted when it ends.
constexpr const char* kDataLog = "data.tmp.log";
// Of its bytes, so that a report with it has at most 5 MB.
constexpr int64_t kMaxPreviewBytes = 600'000;

// An arm while the experiment runs, over the requested seeds.
struct ArmView {
  std::string name;
  bool running = false;
  int64_t runs = 0;
  int64_t runs_done = 0;
  int64_t steps = 0;
  int64_t steps_done = 0;
  double accuracy = -1.0;      // mean of the last evaluations, percent; -1: none yet
  double seconds_left = -1.0;  // -1: unknown
};

class ReproduceObserver {
 public:
  virtual ~ReproduceObserver() = default;
  virtual void prepares(const std::string& /*data*/) {}
  // Before the first run starts: how many runs there are, and how many are already finished.
  virtual void begins(int64_t /*runs*/, int64_t /*finished*/) {}
  virtual void run_started(const std::string& /*arm*/, uint64_t /*seed*/, int64_t /*from_step*/) {}
  virtual void run_finished(const std::string& /*arm*/, uint64_t /*seed*/, double /*accuracy*/,
                            double /*seconds*/) {}
  virtual void run_failed(const std::string& /*sentence*/) {}
  virtual void stops() {}
  // Several times a second.
  virtual void changed(const std::vector<ArmView>& /*arms*/, double /*seconds_left*/) {}
};

struct ReproduceRequest {
  Experiment experiment;
  std::string folder;
  int jobs = 1;
  const std::atomic<bool>* stop = nullptr;  // once true: all runs save their state, then Interrupted
};

struct Reproduced {
  record::Results results;
  std::unique_ptr<train::FolderLock> lock;  // of the folder, still held
};

// Continues what the folder has: finished runs are not repeated, unfinished ones resume, and arms and seeds
// of the same experiment that were not requested this time stay in the results. Throws UsageError (the folder
// has something else, another experiment, results without their runs, or a data.png that is no contact
// sheet), DataError (its results.json is damaged), OutputError before anything is run, also for a link that
// writing would follow, IoError as soon as another process has deleted or replaced the folder, Interrupted,
// and the error of the first run that failed: after the others have finished or, if the disk or the command
// line is the cause, as soon as the others have saved their state.
Reproduced reproduce(const ReproduceRequest& request, ReproduceObserver& observer);

}  // namespace renorm::experiments
