// Runs an experiment: its arms side by side, each `renorm train` in a process of its own. No torch.
//   OUT/results.json        every figure, written anew whenever a run ends
//   OUT/data.png            what the data looks like
//   OUT/runs/ARM/seed-N     folders of `renorm train`, with the evaluations that the arm asks for
//   OUT/runs/ARM/seed-N.log what that process said
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "experiments/experiment.h"
#include "record/results.h"

namespace renorm::experiments {

constexpr const char* kResultsFile = "results.json";
constexpr const char* kPreviewFile = "data.png";

// An arm while the experiment runs, over those of its seeds that were asked for.
struct ArmView {
  std::string name;
  bool running = false;
  int64_t runs = 0;
  int64_t runs_done = 0;
  int64_t steps = 0;
  int64_t steps_done = 0;
  double accuracy = -1.0;      // mean of the last evaluations, percent; -1: none yet
  double seconds_left = -1.0;  // -1: not known yet
};

class ReproduceObserver {
 public:
  virtual ~ReproduceObserver() = default;
  virtual void prepares(const std::string& /*data*/) {}
  // Before the first run starts: how many are finished from before.
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
  const std::atomic<bool>* stop = nullptr;  // once true: all runs save themselves, then Interrupted
};

// What is there already is kept: finished runs are not run again, unfinished ones go on, and arms and seeds
// of the same experiment that were not asked for this time stay in the results. Throws UsageError (the folder
// holds something else, another experiment, or results without their runs), DataError (its results.json is
// damaged), OutputError before anything is run, Interrupted, and of the first run that failed the error that
// it ended with: after the others have finished, or at once if the disk or the command line is to blame; then
// the others save themselves first.
record::Results reproduce(const ReproduceRequest& request, ReproduceObserver& observer);

}  // namespace renorm::experiments
