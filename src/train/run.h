// A run and its folder: config.toml, metrics.jsonl, summary.csv, checkpoints/, lock.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "dist/group.h"
#include "record/metrics.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/trainer.h"

namespace renorm::train {

// Follows a run. All calls come from the thread that trains.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void data_progress(int64_t /*done*/, int64_t /*total*/) {}
  virtual void started(Trainer& /*trainer*/) {}
  // A refused checkpoint, a run that is finished already, settings corrected before the first step, or the
  // cost of a forced bfloat16.
  virtual void note(const std::string& /*sentence*/) {}
  virtual void stepped(const Trainer& /*trainer*/, const StepResult& /*result*/) {}  // every step
  virtual void logged(const record::StepRecord& /*record*/) {}
  virtual void evaluated(const record::EvaluationRecord& /*record*/) {}
  // `seconds` is the pause that the checkpoint made.
  virtual void saved(int64_t /*step*/, const std::string& /*path*/, double /*seconds*/) {}
};

struct RunRequest {
  Config config;  // not resolved; checked by run()
  // The settings given by name: a resumed run must have been started with them.
  std::vector<std::string> given;
  std::string folder;
  // Continue the run in the folder. Without one, start it if `given` has a setting that a run cannot change.
  bool resume = false;
  bool force_bf16 = false;                      // also where bfloat16 costs more than it saves
  std::map<std::string, std::string> versions;  // for the checkpoints
  // Once true: checkpoint after the present step, or nothing before the first, then Interrupted.
  const std::atomic<bool>* stop = nullptr;
  // The processes that train together; null: this one alone. All have the same request, except for `stop`.
  // Rank 0 owns the folder; the others neither read nor write it.
  dist::Group* group = nullptr;
  int threads = 0;  // of this process unless `given` has "threads"; 0: as the config
};

struct RunResult {
  int64_t steps = 0;
  record::EvaluationRecord last;
  double best_accuracy = 0.0;
  int64_t best_step = 0;
  double seconds = 0.0;  // of training, summed over its processes
};

// Writes the settings to the folder before it opens data, so that the run can be resumed whenever its process
// ends. Settings of a run that never recorded anything are replaced; a resume corrects them by `given`.
// Sets the number of LibTorch's threads to the run's. Throws UsageError (a folder with another run, a resume
// with other settings, a bfloat16 that is useless on this CPU and not forced), OutputError before the first
// step, IoError, DataError, MissingInputError (also if there is nothing to resume), NonFiniteError,
// Interrupted, dist::ReportedElsewhere.
RunResult run(const RunRequest& request, Observer& observer);

// The data of a run. `options` has what the config lacks: cache and progress, and the threads if the config
// has 0. Throws as data::open_dataset does.
data::Dataset open_data(const Config& config, data::OpenOptions options);

}  // namespace renorm::train
