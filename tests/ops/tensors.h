// What the tests of the operators share: comparison of tensors, and the text of errors.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/schema.h"

namespace renorm::test {

class Seeded : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1702); }
};

// What rounding alone may cost, relative to the scale of an output: about 80 units in the last place of
// float, 4500 of double, and 2 of bfloat16 (8 bits of precision) and of half (11 bits).
inline double tolerance(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 1e-12;
    case at::kBFloat16:
      return 1.6e-2;
    case at::kHalf:
      return 2e-3;
    default:
      return 1e-5;
  }
}

// The type of parameters and statistics for data of `type`.
inline at::ScalarType statistics_of(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

// The greatest |actual - expected| relative to the greatest |expected|, which counts as no less than
// `least_scale`. Infinite if the sizes differ or anything is not a number.
inline double error_of(const at::Tensor& actual, const at::Tensor& expected, double least_scale = 1.0) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!actual.defined() || !expected.defined() || actual.sizes() != expected.sizes()) return kInfinity;
  if (expected.numel() == 0) return 0.0;
  const at::Tensor a = actual.detach().to(at::kDouble);
  const at::Tensor e = expected.detach().to(at::kDouble);
  const double error = (a - e).abs().max().item<double>();
  return error == error ? error / std::max(least_scale, e.abs().max().item<double>()) : kInfinity;
}

// Whether both step through memory alike, wherever a step is ever taken.
inline bool same_strides(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) > 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

// What `call` throws, without the backtrace; empty if it throws nothing.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace renorm::test
