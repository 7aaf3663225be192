#include "report/numbers.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "base/timing.h"

namespace renorm::report {
namespace {

constexpr double kMostWhole = 9e15;  // a double holds every whole number up to here

std::string whole(double value) {
  if (!(std::fabs(value) < kMostWhole)) return "NaN";
  return grouped(std::llround(value));
}

template <typename Format>
std::string with_spread(const record::Measure& measure, const Format& format) {
  if (measure.values.empty()) return kNothing;
  if (measure.values.size() == 1) return format(measure.mean);
  return fmt::format("{} ± {}", format(measure.mean), format(measure.spread));
}

}  // namespace

std::string counted(size_t number, const std::string& noun) {
  return fmt::format("{} {}{}", grouped(static_cast<int64_t>(number)), noun, number == 1 ? "" : "s");
}

std::string percent(double value) { return std::isfinite(value) ? fmt::format("{:.1f}", value) : "NaN"; }

std::string percent(const record::Measure& measure) {
  return with_spread(measure, [](double value) { return percent(value); });
}

std::string steps(const record::Measure& measure) { return with_spread(measure, whole); }

std::string duration(double seconds) {
  return seconds >= 0.0 && seconds < kMostWhole ? duration_text(seconds) : kNothing;
}

}  // namespace renorm::report
