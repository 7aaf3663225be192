// What `renorm reproduce` shows while it works: a table that is rewritten, or a line for each run that ends.
#pragma once

#include "base/timing.h"
#include "cli/progress.h"
#include "experiments/reproduce.h"

namespace renorm::cli {

class ReproduceView : public experiments::ReproduceObserver {
 public:
  void prepares(const std::string& data) override;
  void begins(int64_t runs, int64_t finished) override;
  void run_started(const std::string& arm, uint64_t seed, int64_t from_step) override;
  void run_finished(const std::string& arm, uint64_t seed, double accuracy, double seconds) override;
  void run_failed(const std::string& sentence) override;
  void stops() override;
  void changed(const std::vector<experiments::ArmView>& arms, double seconds_left) override;

 private:
  Progress progress_;
  int64_t runs_ = 0;
  int64_t runs_done_ = 0;
  Stopwatch watch_;
};

}  // namespace renorm::cli
