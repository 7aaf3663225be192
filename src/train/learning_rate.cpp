#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>

namespace renorm::train {
namespace {

constexpr double kPi = 3.14159265358979323846;

// 0 at the first of `count` steps, 1 at the last.
double progress(int64_t step, int64_t count) {
  if (count <= 1) return 0.0;
  return static_cast<double>(std::min(step, count - 1)) / static_cast<double>(count - 1);
}

}  // namespace

double LearningRate::at(int64_t step) const {
  if (step < warmup) return base * (static_cast<double>(step + 1) / static_cast<double>(warmup));
  const double t = progress(step - warmup, steps - warmup);
  switch (schedule) {
    case LrSchedule::kExponential:
      return base * std::pow(final_fraction, t);
    case LrSchedule::kCosine: {
      const double weight = 0.5 * (1.0 + std::cos(kPi * t));
      return base * (weight + final_fraction * (1.0 - weight));
    }
    case LrSchedule::kConstant:
      break;
  }
  return base;
}

}  // namespace renorm::train
