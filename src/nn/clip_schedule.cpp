#include "renorm/nn/clip_schedule.h"

#include <c10/util/Exception.h>

#include <cmath>
#include <locale>
#include <sstream>

namespace renorm {
namespace {

constexpr int64_t kPaperSteps = 130'000;
constexpr int64_t kNoHold = -1;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

int64_t scaled(int64_t step, int64_t steps) {
  return std::llround(static_cast<double>(step) * static_cast<double>(steps) / kPaperSteps);
}

}  // namespace

ClipSchedule::ClipSchedule(int64_t hold, double r_max, int64_t r_step, double d_max, int64_t d_step)
    : hold_(hold), r_max_(r_max), r_step_(r_step), d_max_(d_max), d_step_(d_step) {
  TORCH_CHECK(r_max >= 1.0, "renorm::ClipSchedule: r_max must be >= 1, got ", r_max);
  TORCH_CHECK(d_max >= 0.0, "renorm::ClipSchedule: d_max must be >= 0, got ", d_max);
}

ClipSchedule ClipSchedule::paper(int64_t steps) {
  TORCH_CHECK(steps > 0, "renorm::ClipSchedule: steps must be > 0, got ", steps);
  return ramp(scaled(5'000, steps), 3.0, scaled(40'000, steps), 5.0, scaled(25'000, steps));
}

ClipSchedule ClipSchedule::ramp(int64_t hold, double r_max, int64_t r_step, double d_max, int64_t d_step) {
  TORCH_CHECK(hold >= 0, "renorm::ClipSchedule: hold must be >= 0, got ", hold);
  TORCH_CHECK(r_step >= hold, "renorm::ClipSchedule: r_step must be >= hold (", hold, "), got ", r_step);
  TORCH_CHECK(d_step >= hold, "renorm::ClipSchedule: d_step must be >= hold (", hold, "), got ", d_step);
  return {hold, r_max, r_step, d_max, d_step};
}

ClipSchedule ClipSchedule::constant(double r_max, double d_max) { return {kNoHold, r_max, 0, d_max, 0}; }

ClipSchedule ClipSchedule::batch_norm() { return constant(1.0, 0.0); }

ClipSchedule ClipSchedule::unlimited() { return constant(kInfinity, kInfinity); }

bool ClipSchedule::operator==(const ClipSchedule& other) const {
  return hold_ == other.hold_ && r_max_ == other.r_max_ && r_step_ == other.r_step_ &&
         d_max_ == other.d_max_ && d_step_ == other.d_step_;
}

std::string ClipSchedule::to_string() const {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  if (hold_ == kNoHold) {
    text << "r_max " << r_max_ << ", d_max " << d_max_;
  } else {
    text << "r_max " << r_max_ << " at " << r_step_ << ", d_max " << d_max_ << " at " << d_step_ << ", hold "
         << hold_;
  }
  return text.str();
}

}  // namespace renorm
