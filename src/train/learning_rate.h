// The learning rate as a function of the step.
#pragma once

#include <cstdint>

#include "train/config.h"

namespace renorm::train {

// With t running from 0 at the first step after the warm-up to 1 at the last step of the run:
//   exponential  base final_fraction^t
//   cosine       base (w + final_fraction (1 - w)), w = (1 + cos(pi t)) / 2
//   constant     base
struct LearningRate {
  LrSchedule schedule = LrSchedule::kExponential;
  double base = 0.003;
  double final_fraction = 0.05;  // of base at the last step; unused by constant
  int64_t warmup = 0;            // steps of linear increase: base / warmup at step 0, base at step warmup - 1
  int64_t steps = 1;             // length of the run

  // For steps 0 .. steps - 1; later steps have the last rate. Exact at both ends; base if there is only one
  // step after the warm-up.
  double at(int64_t step) const;
};

}  // namespace renorm::train
