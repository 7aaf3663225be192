// Helpers for the tests of the operators: comparison of tensors, and messages of errors.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/batch_renorm.h"

namespace renorm::test {

class Seeded : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1702); }
};

// The error that rounding alone may cause, relative to the scale of an output: about 80 units in the last
// place of float, 4500 of double, and 2 of bfloat16 (8 bits of precision) and of half (11 bits).
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

// The maximum of |actual - expected| relative to the maximum of |expected| or `min_scale`, whichever is
// larger. Infinite if the sizes differ or a value is NaN.
inline double error_of(const at::Tensor& actual, const at::Tensor& expected, double min_scale = 1.0) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!actual.defined() || !expected.defined() || actual.sizes() != expected.sizes()) return kInfinity;
  if (expected.numel() == 0) return 0.0;
  const at::Tensor a = actual.detach().to(at::kDouble);
  const at::Tensor e = expected.detach().to(at::kDouble);
  const double error = (a - e).abs().max().item<double>();
  return error == error ? error / std::max(min_scale, e.abs().max().item<double>()) : kInfinity;
}

// Whether the strides are equal in every dimension of more than one element.
inline bool same_strides(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (a.size(dim) > 1 && a.stride(dim) != b.stride(dim)) return false;
  }
  return true;
}

// The message of the error that `call` throws, without the backtrace; empty if it throws none.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

}  // namespace renorm::test
