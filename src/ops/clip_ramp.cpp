#include "renorm/ops/clip_ramp.h"

namespace renorm::ops {

ClipLimits ClipRamp::at(int64_t step) const {
  if (hold < 0) return {r_max, d_max};
  if (step <= hold) return {1.0, 0.0};
  const auto ramp = [this, step](double start, double end, int64_t last) {
    if (step >= last) return end;
    return start + (end - start) * static_cast<double>(step - hold) / static_cast<double>(last - hold);
  };
  return {ramp(1.0, r_max, r_step), ramp(0.0, d_max, d_step)};
}

}  // namespace renorm::ops
