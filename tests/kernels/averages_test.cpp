#include "kernels/averages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cases.h"
#include "kernels/reference/reference.h"
#include "support/effort.h"
#include "support/random.h"

namespace renorm::test {
namespace {

using kernels::ClipCounts;

template <typename P>
class MovingAverage : public ::testing::Test {};
using ParameterTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(MovingAverage, ParameterTypes);

// One rounding per step, and an error that shrinks by (1 - momentum) per step: at most 1 / momentum units.
template <typename P>
constexpr double kAverageTolerance = 20.0 * std::numeric_limits<P>::epsilon();

// After T steps with statistics v_1 .. v_T:
// (1 - momentum)^T start + sum over t of momentum (1 - momentum)^(T - t) v_t.
TYPED_TEST(MovingAverage, EqualsClosedFormAfterManySteps) {
  using P = TypeParam;
  constexpr int64_t kSteps = 200;
  constexpr int64_t kGroups = 3;
  constexpr double kMomentum = 0.1;
  for (const int64_t channels : {1, 2, 7, 8, 33, 129}) {
    Random random(11);
    std::vector<P> running(static_cast<size_t>(channels), P(1));
    std::vector<double> closed_form(running.size(), std::pow(1.0 - kMomentum, kSteps));
    for (int64_t step = 1; step <= kSteps; ++step) {
      std::vector<P> value(static_cast<size_t>(kGroups * channels));
      for (P& v : value) v = static_cast<P>(random.uniform(0.5, 1.5));
      std::vector<double> sum(running.size(), 0.0);
      kernels::add_groups(value.data(), kGroups, channels, sum.data());
      kernels::move_average(sum.data(), static_cast<double>(kGroups), channels, kMomentum, running.data());
      for (size_t i = 0; i < value.size(); ++i) {
        closed_form[i % running.size()] +=
            kMomentum * std::pow(1.0 - kMomentum, kSteps - step) * static_cast<double>(value[i]) / kGroups;
      }
    }
    for (size_t c = 0; c < running.size(); ++c) {
      EXPECT_NEAR(static_cast<double>(running[c]), closed_form[c], kAverageTolerance<P>);
    }
  }
}

TYPED_TEST(MovingAverage, AddGroupsAddsToWhatIsThere) {
  const std::vector<TypeParam> value = {1, 2, 3, 10, 20, 30};
  std::vector<double> sum = {100.0, 200.0, 300.0};
  kernels::add_groups(value.data(), 2, 3, sum.data());
  EXPECT_EQ(sum, (std::vector<double>{111.0, 222.0, 333.0}));
}

TYPED_TEST(MovingAverage, MomentumOneReplacesTheAverage) {
  std::vector<TypeParam> running = {TypeParam(5), TypeParam(-5)};
  const std::vector<double> sum = {6.0, 9.0};
  kernels::move_average(sum.data(), 3.0, 2, 1.0, running.data());
  EXPECT_EQ(running, (std::vector<TypeParam>{TypeParam(2), TypeParam(3)}));
}

template <typename P>
class ClipCount : public ::testing::Test {};
TYPED_TEST_SUITE(ClipCount, ParameterTypes);

// Two groups of three channels; running_mean = 0, running_std = 2.
// r = {0.25, 1, 4; 2, 0.5, 1}, d = {-3, 0, 1; 0.5, 2, -0.5}; r_max = 2, d_max = 1: a value at the limit is
// not clipped.
TYPED_TEST(ClipCount, CountsWhatIsBeyondTheLimits) {
  using P = TypeParam;
  const std::vector<P> mean = {P(-6), P(0), P(2), P(1), P(4), P(-1)};
  const std::vector<P> std = {P(0.5), P(2), P(8), P(4), P(1), P(2)};
  const std::vector<P> running_mean(3, P(0));
  const std::vector<P> running_std(3, P(2));
  ClipCounts counts;
  for (int64_t pass = 1; pass <= 2; ++pass) {
    kernels::count_clips(mean.data(), std.data(), running_mean.data(), running_std.data(), 2, 3, 2.0, 1.0,
                         &counts);
    EXPECT_EQ(counts.values, 6 * pass);
    EXPECT_EQ(counts.r_above, 1 * pass);
    EXPECT_EQ(counts.r_below, 1 * pass);
    EXPECT_EQ(counts.d_outside, 2 * pass);
    EXPECT_DOUBLE_EQ(counts.r.sum, 8.75 * static_cast<double>(pass));
    EXPECT_DOUBLE_EQ(counts.r.m2, (22.3125 - 8.75 * 8.75 / 6.0) * static_cast<double>(pass));
    EXPECT_DOUBLE_EQ(counts.d.sum, 0.0);
    EXPECT_DOUBLE_EQ(counts.d.m2, 14.5 * static_cast<double>(pass));
    EXPECT_EQ(counts.r.min, 0.25);
    EXPECT_EQ(counts.r.max, 4.0);
    EXPECT_EQ(counts.d.min, -3.0);
    EXPECT_EQ(counts.d.max, 2.0);
  }
}

TYPED_TEST(ClipCount, NothingIsClippedWhenTheLimitsAreInfinite) {
  const std::vector<TypeParam> mean = {TypeParam(100)};
  const std::vector<TypeParam> std = {TypeParam(1000)};
  const std::vector<TypeParam> one = {TypeParam(1)};
  ClipCounts counts;
  const double infinity = std::numeric_limits<double>::infinity();
  kernels::count_clips(mean.data(), std.data(), one.data(), one.data(), 1, 1, infinity, infinity, &counts);
  EXPECT_EQ(counts.values, 1);
  EXPECT_EQ(counts.r_above + counts.r_below + counts.d_outside, 0);
}

TYPED_TEST(ClipCount, EmptyBatchLeavesTheCountsAlone) {
  ClipCounts counts;
  kernels::count_clips<TypeParam>(nullptr, nullptr, nullptr, nullptr, 0, 5, 2.0, 1.0, &counts);
  EXPECT_EQ(counts.values, 0);
  EXPECT_EQ(counts.r.max, 0.0);
}

// Channel counts that end at every position of the implementation's blocks.
TYPED_TEST(ClipCount, EqualsPlainLoopForEveryChannelCount) {
  using P = TypeParam;
  constexpr double kRMax = 1.3;
  constexpr double kDMax = 0.7;
  constexpr int64_t kGroups = 2;
  Random random(12);
  for (int64_t channels = 1; channels <= 140; ++channels) {
    std::vector<P> mean, std, running_mean, running_std;
    for (int64_t i = 0; i < kGroups * channels; ++i) {
      mean.push_back(static_cast<P>(random.normal()));
      std.push_back(static_cast<P>(random.uniform(0.5, 2.0)));
    }
    for (int64_t i = 0; i < channels; ++i) {
      running_mean.push_back(static_cast<P>(random.normal()));
      running_std.push_back(static_cast<P>(random.uniform(0.5, 2.0)));
    }
    ClipCounts counts;
    kernels::count_clips(mean.data(), std.data(), running_mean.data(), running_std.data(), kGroups, channels,
                         kRMax, kDMax, &counts);
    int64_t above = 0, below = 0, outside = 0;
    double r_sum = 0.0;
    std::vector<double> all_d;
    for (size_t i = 0; i < mean.size(); ++i) {
      const size_t c = i % running_mean.size();
      // One by one in the statistics' own precision, as the forward computes them.
      const double r = static_cast<double>(std[i] / running_std[c]);
      const double d = static_cast<double>((mean[i] - running_mean[c]) / running_std[c]);
      above += r > kRMax;
      below += r < 1.0 / kRMax;
      outside += std::abs(d) > kDMax;
      r_sum += r;
      all_d.push_back(d);
    }
    double d_mean = 0.0, d_m2 = 0.0;
    for (const double d : all_d) d_mean += d / static_cast<double>(all_d.size());
    for (const double d : all_d) d_m2 += (d - d_mean) * (d - d_mean);
    ASSERT_EQ(counts.r_above, above);
    ASSERT_EQ(counts.r_below, below);
    ASSERT_EQ(counts.d_outside, outside);
    ASSERT_NEAR(counts.r.sum, r_sum, 1e-12 * r_sum);
    ASSERT_NEAR(counts.d.m2, d_m2, 1e-12 * d_m2);
    ASSERT_EQ(counts.d.min, *std::min_element(all_d.begin(), all_d.end()));
  }
}

template <typename P>
class NonFinite : public ::testing::Test {};
TYPED_TEST_SUITE(NonFinite, ParameterTypes);

TYPED_TEST(NonFinite, FindsTheFirstWhereverItStands) {
  using P = TypeParam;
  using Limits = std::numeric_limits<P>;
  for (const P bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
    for (int64_t at = 0; at < 300; ++at) {
      std::vector<P> value(300, P(1));
      value[static_cast<size_t>(at)] = bad;
      value.back() = bad;
      ASSERT_EQ(kernels::find_non_finite(value.data(), 300), at);
      ASSERT_EQ(kernels::find_non_finite(value.data(), at), -1);
    }
  }
}

TYPED_TEST(NonFinite, AcceptsTheLargestAndTheSmallest) {
  using Limits = std::numeric_limits<TypeParam>;
  const std::vector<TypeParam> value = {Limits::max(), Limits::lowest(), Limits::denorm_min(),
                                        TypeParam(-0.0)};
  EXPECT_EQ(kernels::find_non_finite(value.data(), 4), -1);
}

// Groups of four standard normal values, many per step.
class ExpectedR : public ::testing::Test {
 protected:
  static constexpr int64_t kGroups = 256;
  static constexpr int64_t kGroupSize = 4;
  static constexpr double kMomentum = 0.002;
  static constexpr int64_t kWarmUp = 5000;  // (1 - kMomentum)^kWarmUp = 4e-5 of the start remains
  static constexpr int64_t kMeasured = 2000;
  // r varies by about 0.42: 5e5 groups leave 6e-4, the moving average itself 0.42 / 16 * sqrt(0.001) = 8e-4.
  static constexpr double kMonteCarloError = 0.005;

  std::vector<double> batch_std_ = std::vector<double>(kGroups);

  void draw_batch_std() {
    std::vector<double> x(kGroups * kGroupSize), y(x.size()), mean(kGroups), low(kGroups), r(kGroups),
        d(kGroups);
    for (double& value : x) value = random_.normal();
    kernels::reference::forward({kernels::Layout::kNcs,
                                 {kGroups * kGroupSize, 1, 1},
                                 kernels::contiguous_groups(kGroups * kGroupSize, kGroupSize),
                                 kernels::Activation::kNone,
                                 1e-12,
                                 1.0,
                                 0.0,
                                 x.data(),
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 y.data(),
                                 mean.data(),
                                 low.data(),
                                 batch_std_.data(),
                                 r.data(),
                                 d.data()});
  }

  // The mean of batch_std / scale(average) over fresh batches, where the average has followed
  // statistic(batch_std) until it converged.
  template <typename Statistic, typename Scale>
  double mean_r(const Statistic& statistic, const Scale& scale) {
    double average = 1.0;
    double r_sum = 0.0;
    for (int64_t step = 0; step < kWarmUp + kMeasured; ++step) {
      draw_batch_std();
      if (step >= kWarmUp) {
        for (const double std : batch_std_) r_sum += std / scale(average);
      }
      std::vector<double> followed;
      for (const double std : batch_std_) followed.push_back(statistic(std));
      double sum = 0.0;
      kernels::add_groups(followed.data(), kGroups, 1, &sum);
      kernels::move_average(&sum, static_cast<double>(kGroups), 1, kMomentum, &average);
    }
    return r_sum / static_cast<double>(kMeasured * kGroups);
  }

 private:
  Random random_{13};
};

TEST_F(ExpectedR, IsOneWithMovingStandardDeviation) {
  const double r = mean_r([](double std) { return std; }, [](double average) { return average; });
  EXPECT_NEAR(r, 1.0, kMonteCarloError);
}

// Checks the test above: the common mistake is far outside its tolerance.
TEST_F(ExpectedR, IsNotOneWithMovingVariance) {
  const double r =
      mean_r([](double std) { return std * std; }, [](double average) { return std::sqrt(average); });
  EXPECT_NEAR(r, 0.9213, kMonteCarloError);
  EXPECT_GT(std::abs(r - 1.0), 10.0 * kMonteCarloError);
}

}  // namespace
}  // namespace renorm::test
