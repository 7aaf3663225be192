// The output of `renorm train` on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/timing.h"
#include "cli/progress.h"
#include "record/metrics.h"
#include "train/run.h"

namespace renorm::cli {

// On a terminal, one rewritten line, and evaluations and checkpoints as lines that stay. Otherwise one plain
// line per record. With `quiet`, only notes.
class TrainProgress : public train::Observer {
 public:
  // `engine` has started the processes of the run, if there are several.
  TrainProgress(std::string folder, bool quiet, std::string engine = "");

  // Whether the run keeps averaged weights. Valid once it has started.
  bool averages() const { return averages_; }

  void data_progress(int64_t done, int64_t total) override;
  void started(train::Trainer& trainer) override;
  void note(const std::string& sentence) override;
  void stepped(const train::Trainer& trainer, const train::StepResult& result) override;
  void logged(const record::StepRecord& record) override;
  void evaluated(const record::EvaluationRecord& record) override;
  void saved(int64_t step, const std::string& path, double seconds) override;

 private:
  using Clock = std::chrono::steady_clock;

  // Sums over the last seconds, exponentially weighted.
  struct Recent {
    double seconds = 0.0;
    double images = 0.0;
    double loss = 0.0;
    double correct = 0.0;
    void add(const train::StepResult& result);
  };

  bool due();  // whether it is time to rewrite the line
  std::string step_text(int64_t step) const;
  std::string time_left(int64_t step) const;
  void add_clips(const record::StepRecord& record, std::vector<ProgressField>* all) const;
  std::vector<ProgressField> fields(const record::StepRecord& record) const;
  void print(const std::string& line);

  std::string engine_;
  Progress progress_;
  std::string folder_;
  bool quiet_;
  bool data_announced_ = false;
  bool renorm_ = false;
  bool averages_ = false;
  int64_t steps_ = 0;
  int64_t first_step_ = 0;
  Stopwatch watch_;
  Clock::time_point last_shown_ = Clock::time_point::min();
  Recent recent_;
  record::StepRecord last_record_;  // whose clip fractions are shown between records
};

}  // namespace renorm::cli
