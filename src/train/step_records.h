// The records of training steps for metrics.jsonl.
#pragma once

#include "base/timing.h"
#include "record/metrics.h"
#include "train/trainer.h"

namespace renorm::train {

// Throughput is measured from one logged step to the next.
class StepRecords {
 public:
  void add(const StepResult& result);  // every step
  // The record of the last step done. All processes of a run call it.
  record::StepRecord of(const Trainer& trainer, const StepResult& result, int64_t skipped_images);
  void logged(const record::StepRecord& record);  // starts a new interval
  // Does not count `seconds`, which were not spent on training.
  void exclude(double seconds) { interval_.exclude(seconds); }
  void restart() { interval_ = {}; }

 private:
  int64_t images_ = 0;      // since the last logged step
  double load_wait_ = 0.0;  // seconds spent waiting for them
  double rate_ = 0.0;       // of the last interval
  double wait_percent_ = 0.0;
  Stopwatch interval_;
};

}  // namespace renorm::train
