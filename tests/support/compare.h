// Comparison of a computed array with the reference, relative to the scale of the whole array.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "support/buffer.h"

namespace renorm::test {

// The error that rounding alone may cause, relative to the scale of an output. The specified bounds:
// about 80 units in the last place of float, 4500 of double, and 2 of bfloat16 (8 bits of precision).
template <typename T>
constexpr double kTolerance = 1e-5;
template <>
inline constexpr double kTolerance<double> = 1e-12;
template <>
inline constexpr double kTolerance<kernels::BFloat16> = 1.6e-2;

// The largest magnitude, at least 1.
inline double scale_of(const Buffer<double>& values) {
  double scale = 1.0;
  for (int64_t i = 0; i < values.size(); ++i) scale = std::max(scale, std::abs(values[i]));
  return scale;
}

// Succeeds if every |actual - expected| <= tolerance * max(scale_of(expected), min_scale) and no canary was
// overwritten.
template <typename T>
::testing::AssertionResult near(const std::string& name, const Buffer<T>& actual,
                                const Buffer<double>& expected, double tolerance, double min_scale = 1.0) {
  if (actual.size() != expected.size()) return ::testing::AssertionFailure() << name << ": sizes differ";
  if (!actual.intact()) return ::testing::AssertionFailure() << name << ": written outside its bounds";
  const double bound = tolerance * std::max(scale_of(expected), min_scale);
  for (int64_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(widen(actual[i]) - expected[i]);
    if (!(error <= bound)) {
      return ::testing::AssertionFailure()
             << name << "[" << i << "] of " << actual.size() << ": got " << widen(actual[i]) << ", expected "
             << expected[i] << ", error " << error << " > " << bound;
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace renorm::test
