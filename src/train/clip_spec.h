// "--clip": the limits of r and d during a run.
#pragma once

#include <renorm/nn/clip_schedule.h>

#include <cstdint>
#include <string>

namespace renorm::train {

// A step of the run, or a fraction (0 .. 1) of its length.
struct ClipPoint {
  double value = 0.0;
  bool fraction = false;
};

struct ClipSpec {
  enum class Kind { kPaper, kConstant, kRamp };
  Kind kind = Kind::kPaper;
  int64_t paper_steps = 0;  // kPaper: length of the run it is scaled to; 0: the run's own
  double r_max = 3.0;       // kConstant, kRamp
  double d_max = 5.0;
  ClipPoint hold;  // kRamp
  ClipPoint r_at;
  ClipPoint d_at;
};

// "paper": the schedule of the paper, scaled to the length of the run. "paper@130000": as in a run of that
// many steps. "R,D": constant, R >= 1, D >= 0, "inf" allowed. "hold:H,r:R@S,d:D@S": batchnorm up to step H
// (default 0), then linear to R and D at their steps; steps, or fractions of the run with %:
// "hold:4%,r:3@31%,d:5@19%". Throws UsageError with what was expected and where.
ClipSpec parse_clip(const std::string& text);

// The steps of a ramp in a run of `steps` steps, with fractions rounded. Throws UsageError if one is before
// the hold.
struct ClipSteps {
  int64_t hold = 0;
  int64_t r_at = 0;
  int64_t d_at = 0;
};
ClipSteps clip_steps(const ClipSpec& spec, int64_t steps);

// In a run of `steps` >= 1 steps. Throws UsageError as clip_steps does. Inline, so that only callers need to
// link ClipSchedule and with it LibTorch.
inline ClipSchedule to_schedule(const ClipSpec& spec, int64_t steps) {
  switch (spec.kind) {
    case ClipSpec::Kind::kPaper:
      return ClipSchedule::paper(spec.paper_steps > 0 ? spec.paper_steps : steps);
    case ClipSpec::Kind::kConstant:
      return ClipSchedule::constant(spec.r_max, spec.d_max);
    case ClipSpec::Kind::kRamp:
      break;
  }
  const ClipSteps at = clip_steps(spec, steps);
  return ClipSchedule::ramp(at.hold, spec.r_max, at.r_at, spec.d_max, at.d_at);
}

}  // namespace renorm::train
