#include "report/numbers.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

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
  if (!(seconds >= 0.0 && seconds < kMostWhole)) return kNothing;
  const int64_t total = std::llround(seconds);
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{} min {} s", total / 60, total % 60);
  return fmt::format("{} h {} min", grouped(total / 3600), total % 3600 / 60);
}

}  // namespace renorm::report
