#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "base/text.h"

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
  if (schedule == "exponential") return base * std::pow(final_fraction, t);
  if (schedule == "cosine") {
    const double weight = 0.5 * (1.0 + std::cos(kPi * t));
    return base * (weight + final_fraction * (1.0 - weight));
  }
  if (schedule == "constant") return base;
  throw UsageError("there is no learning-rate schedule '" + printable(schedule) + "'" +
                   name_hint(schedule, {"exponential", "cosine", "constant"}));
}

}  // namespace renorm::train
