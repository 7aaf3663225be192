#include "train/clip_spec.h"

namespace renorm::train {

ClipSchedule to_schedule(const ClipSpec& spec, int64_t steps) {
  switch (spec.kind) {
    case ClipSpec::Kind::kPaper:
      return ClipSchedule::paper().scaled_to(spec.paper_steps > 0 ? spec.paper_steps : steps);
    case ClipSpec::Kind::kConstant:
      return ClipSchedule::constant(spec.r_max, spec.d_max);
    case ClipSpec::Kind::kRamp:
      break;
  }
  const ClipSteps at = clip_steps(spec, steps);
  return ClipSchedule::ramp(at.hold, spec.r_max, at.r_at, spec.d_max, at.d_at);
}

}  // namespace renorm::train
