// The limits of r and d as a function of the training step.
#pragma once

#include <renorm/export.h>
#include <renorm/ops/clip_ramp.h>

#include <cstdint>
#include <limits>
#include <string>

namespace renorm {

// A value: batchnorm (r_max = 1, d_max = 0) up to and including step `hold`, then linear to r_max at step
// `r_step` and to d_max at step `d_step`, constant afterwards. Evaluated at a step, it keeps no state.
class RENORM_API ClipSchedule {
 public:
  // The paper's schedule: hold 5,000, r_max 3 at 40,000, d_max 5 at 25,000, in a run of 130,000 steps. For a
  // run of `steps` > 0 steps every step is scaled in proportion and rounded.
  static ClipSchedule paper(int64_t steps = 130'000);
  // r_max >= 1, d_max >= 0, 0 <= hold <= r_step, hold <= d_step. Limits may be infinite: from hold + 1 on.
  static ClipSchedule ramp(int64_t hold, double r_max, int64_t r_step, double d_max, int64_t d_step);
  static ClipSchedule constant(double r_max, double d_max);
  static ClipSchedule batch_norm();  // constant(1, 0)
  static ClipSchedule unlimited();   // no clipping: training output = inference output

  ClipLimits at(int64_t step) const { return constants().at(step); }
  // The constants as operators take them.
  ops::ClipRamp constants() const { return {hold_, r_max_, r_step_, d_max_, d_step_}; }

  int64_t hold() const { return hold_; }
  double r_max() const { return r_max_; }
  int64_t r_step() const { return r_step_; }
  double d_max() const { return d_max_; }
  int64_t d_step() const { return d_step_; }

  bool operator==(const ClipSchedule& other) const;
  bool operator!=(const ClipSchedule& other) const { return !(*this == other); }

  // For display: "r_max 3, d_max 5" or "r_max 3 at 40000, d_max 5 at 25000, hold 5000".
  std::string to_string() const;

 private:
  ClipSchedule(int64_t hold, double r_max, int64_t r_step, double d_max, int64_t d_step);

  int64_t hold_;  // -1: no hold, the final limits from step 0
  double r_max_;
  int64_t r_step_;
  double d_max_;
  int64_t d_step_;
};

}  // namespace renorm
