// The examples of a run's steps, pass by pass, as one process takes them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/batch_stream.h"
#include "data/dataset.h"
#include "data/sampler.h"

namespace renorm::train {

struct PassPlan {
  int64_t steps;  // of the run
  int64_t first;  // this process's first example of a step
  int64_t share;  // its number of examples of a step
  int64_t pass;   // maximum of examples per pass
};

// A pass has examples of one step only. Nothing is loaded in advance beyond the last step.
class PassStream {
 public:
  // `split` must live as long as the stream.
  PassStream(const data::Split& split, data::Sampler sampler, const PassPlan& plan);
  PassStream(const PassStream&) = delete;
  PassStream& operator=(const PassStream&) = delete;

  // Continues with the first pass of the step after `steps_done`.
  void restart(int64_t steps_done);
  // The next pass of that step, or of a step beyond the end of the run. Throws NonFiniteError with the step
  // and the example, and what loading threw; then restart() is due.
  data::DrawnBatch next(int64_t steps_done);
  double epochs(int64_t steps) const { return sampler_.epochs(steps); }

 private:
  std::vector<data::Draw> next_draws();

  const data::Split& split_;
  data::Sampler sampler_;
  PassPlan plan_;
  int64_t steps_done_ = 0;
  // The next draws, which may be ahead of the steps done.
  int64_t drawn_step_ = 0;
  int64_t drawn_ = 0;              // of this process's examples of that step
  std::vector<int64_t> examples_;  // of that step, of all processes
  std::unique_ptr<data::BatchStream> stream_;
};

}  // namespace renorm::train
