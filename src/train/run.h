// A run and its folder: config.toml, metrics.jsonl, summary.csv, checkpoints/, lock.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "record/metrics.h"
#include "train/checkpoint.h"
#include "train/config.h"
#include "train/trainer.h"

namespace renorm::train {

// What whoever started a run wants to hear. All calls come from the thread that trains.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void data_progress(int64_t /*done*/, int64_t /*total*/) {}
  virtual void started(Trainer& /*trainer*/) {}
  virtual void note(const std::string& /*sentence*/) {
  }  // a checkpoint refused, a run that was finished already
  virtual void stepped(const Trainer& /*trainer*/, const StepResult& /*result*/) {}  // every step
  virtual void logged(const record::StepRecord& /*record*/) {}
  virtual void evaluated(const record::EvaluationRecord& /*record*/) {}
  virtual void saved(int64_t /*step*/, const std::string& /*path*/) {}
};

struct RunRequest {
  Config config;  // as asked for, not resolved
  std::vector<std::string>
      given;  // settings asked for by name: a resumed run must have been started with them
  std::string folder;
  bool resume = false;                          // continue what the folder holds; start if it holds nothing
  std::map<std::string, std::string> versions;  // for the checkpoints
  const std::atomic<bool>* stop = nullptr;  // once true: checkpoint after the present step, then Interrupted
};

struct RunResult {
  int64_t steps = 0;
  record::EvaluationRecord last;
  double best_accuracy = 0.0;
  int64_t best_step = 0;
  double seconds = 0.0;  // of training, over all its processes
};

// Throws UsageError (a folder that holds another run, a resume with other settings), OutputError before the
// first step, IoError, DataError, MissingInputError, NonFiniteError, Interrupted.
RunResult run(const RunRequest& request, Observer& observer);

// A finished or unfinished run opened for reading.
struct OpenedRun {
  RunState state;
  std::string checkpoint;  // its folder
  std::shared_ptr<models::Classifier> model;
  std::unique_ptr<WeightAverage> average;  // null if the run keeps none
};
// `checkpoint` is "last", "best" or "step-N". The data is not opened. Throws MissingInputError, DataError.
OpenedRun open_run(const std::string& folder, const std::string& checkpoint);

// The data of a run. `options` has what the config does not say: cache and progress, and the threads if the
// config leaves them open. Throws as data::open_dataset does.
data::Dataset open_data(const Config& config, data::OpenOptions options);

}  // namespace renorm::train
