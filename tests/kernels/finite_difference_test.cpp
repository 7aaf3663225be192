// The reference backward against central differences of the forward with r and d held fixed. They are
// constants of the backward pass: a difference that lets them change disagrees with correct code.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "cases.h"
#include "kernels/reference/reference.h"
#include "support/compare.h"
#include "support/effort.h"

namespace renorm::test {
namespace {

namespace reference = kernels::reference;

constexpr double kStep = 1e-5;
// Truncation, kStep^2 times a third derivative of at most about 1e3 (batch_std > 0.2), plus rounding,
// 1e-16 times a loss of about 100 over kStep.
constexpr double kTolerance = 1e-6;
// No step of kStep in one value moves a pre-activation by as much as this.
constexpr double kMaskMargin = 1e-2;
constexpr int64_t kCases = 500;

// A case with its reference results, and the loss sum(dy * y) as a function of x, weight, bias and residual.
class Differences {
 public:
  explicit Differences(const Case& c) : case_(c), arrays_(draw_arrays<double>(c)) {
    reference::forward(forward_problem(case_, arrays_));
    for (int64_t channel = 0; channel < c.shape.c; ++channel) {
      weight_.push_back(c.has_weight ? arrays_.weight[channel] : 1.0);
      bias_.push_back(c.has_bias ? arrays_.bias[channel] : 0.0);
    }
    for (int64_t i = 0; i < values_of(c); ++i) {
      residual_.push_back(c.has_residual ? arrays_.residual[i] : 0.0);
    }
    normalized_.resize(static_cast<size_t>(values_of(c)));
    silence_values_near_the_kink();
  }

  // Whether the statistics are constant when x changes.
  void freeze(bool frozen) { frozen_ = frozen; }

  Arrays<double>& backward() {
    kernels::Backward<double> problem = backward_problem(case_, arrays_);
    problem.frozen = frozen_;
    problem.dresidual = arrays_.dresidual.data();
    reference::backward(problem);
    return arrays_;
  }

  Buffer<double> slope_along_x() { return slopes(arrays_.x.data(), arrays_.x.size()); }
  Buffer<double> slope_along_weight() { return slopes(weight_.data(), case_.shape.c); }
  Buffer<double> slope_along_bias() { return slopes(bias_.data(), case_.shape.c); }
  Buffer<double> slope_along_residual() { return slopes(residual_.data(), values_of(case_)); }

 private:
  // (x - batch_mean) / batch_std, from the forward without weight, bias and averages.
  void normalize() {
    if (frozen_) {
      for_each_channel([&](int64_t group, int64_t channel, int64_t statistic) {
        for_each_value(case_, group, channel, [&](int64_t i) {
          normalized_[static_cast<size_t>(i)] =
              (arrays_.x[i] - arrays_.batch_mean[statistic]) / arrays_.batch_std[statistic];
        });
      });
      return;
    }
    std::vector<double> unused(static_cast<size_t>(statistics_of(case_)));
    kernels::Forward<double> problem = forward_problem(case_, arrays_);
    problem.activation = kernels::Activation::kNone;
    problem.weight = problem.bias = problem.running_mean = problem.running_std = nullptr;
    problem.residual = nullptr;
    problem.mask = nullptr;
    problem.y = normalized_.data();
    problem.batch_mean = problem.batch_mean_low = problem.batch_std = problem.r = problem.d = unused.data();
    reference::forward(problem);
  }

  template <typename Visit>
  void for_each_channel(const Visit& visit) const {
    for (int64_t group = 0; group < case_.groups.count; ++group) {
      for (int64_t channel = 0; channel < case_.shape.c; ++channel) {
        visit(group, channel, group * case_.shape.c + channel);
      }
    }
  }

  template <typename Visit>
  void for_each_output(const Visit& visit) {
    normalize();
    for_each_channel([&](int64_t group, int64_t channel, int64_t statistic) {
      const auto k = static_cast<size_t>(channel);
      for_each_value(case_, group, channel, [&](int64_t i) {
        const double x_hat =
            normalized_[static_cast<size_t>(i)] * arrays_.r[statistic] + arrays_.d[statistic];
        visit(i, weight_[k] * x_hat + bias_[k] + residual_[static_cast<size_t>(i)]);
      });
    });
  }

  // ReLU has no derivative at 0: values close to it are excluded from the loss.
  void silence_values_near_the_kink() {
    if (case_.activation != kernels::Activation::kRelu) return;
    for_each_output([&](int64_t i, double pre_activation) {
      if (std::abs(pre_activation) < kMaskMargin) arrays_.dy[i] = 0.0;
    });
  }

  double loss() {
    double total = 0.0;
    const bool relu = case_.activation == kernels::Activation::kRelu;
    for_each_output([&](int64_t i, double y) { total += arrays_.dy[i] * (relu ? std::max(y, 0.0) : y); });
    return total;
  }

  Buffer<double> slopes(double* values, int64_t count) {
    Buffer<double> result(count, 0, Buffer<double>::Use::kOutput);
    for (int64_t i = 0; i < count; ++i) {
      const double value = values[i];
      values[i] = value + kStep;
      const double above = loss();
      values[i] = value - kStep;
      const double below = loss();
      values[i] = value;
      result[i] = (above - below) / (2.0 * kStep);
    }
    return result;
  }

  Case case_;
  Arrays<double> arrays_;
  std::vector<double> weight_, bias_, residual_, normalized_;
  bool frozen_ = false;
};

void expect_slopes(kernels::Activation activation, bool frozen, uint64_t seed) {
  Random random(seed);
  for (int64_t k = 0; k < case_count(kCases); ++k) {
    Case c = draw_tiny_case(random);
    c.activation = activation;
    c.eps = random.uniform(0.05, 0.5);
    SCOPED_TRACE(describe(c));
    Differences differences(c);
    differences.freeze(frozen);
    const Arrays<double>& gradient = differences.backward();
    ASSERT_TRUE(near("dx", gradient.dx, differences.slope_along_x(), kTolerance));
    ASSERT_TRUE(near("dweight", gradient.dweight, differences.slope_along_weight(), kTolerance));
    ASSERT_TRUE(near("dbias", gradient.dbias, differences.slope_along_bias(), kTolerance));
    ASSERT_TRUE(near("dresidual", gradient.dresidual, differences.slope_along_residual(), kTolerance));
  }
}

TEST(ReferenceGradient, EqualsDifferencesWithRAndDFixed) {
  expect_slopes(kernels::Activation::kNone, false, 1);
}

TEST(ReferenceGradient, EqualsDifferencesThroughRelu) { expect_slopes(kernels::Activation::kRelu, false, 2); }

TEST(ReferenceGradient, EqualsDifferencesWithFrozenStatistics) {
  expect_slopes(kernels::Activation::kNone, true, 3);
}

TEST(ReferenceGradient, EqualsDifferencesWithFrozenStatisticsThroughRelu) {
  expect_slopes(kernels::Activation::kRelu, true, 4);
}

}  // namespace
}  // namespace renorm::test
