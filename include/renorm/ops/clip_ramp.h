// The limits of r and d as a function of the training step, as plain constants.
#pragma once

#include <renorm/export.h>

#include <cstdint>

namespace renorm {

struct ClipLimits {
  double r_max;
  double d_max;
};

namespace ops {

// Batchnorm (1 and 0) up to and including step `hold`, then linear to r_max at step r_step and to d_max at
// step d_step, constant afterwards. A negative hold gives r_max and d_max always.
struct RENORM_API ClipRamp {
  int64_t hold;
  double r_max;  // >= 1, may be infinite
  int64_t r_step;
  double d_max;  // >= 0, may be infinite
  int64_t d_step;

  ClipLimits at(int64_t step) const;
};

}  // namespace ops
}  // namespace renorm
