// The parts of a training step against the reference, and against the whole step.
#include "kernels/parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cases.h"
#include "kernels/kernels.h"
#include "kernels/reference/parts.h"
#include "kernels/reference/reference.h"
#include "support/compare.h"
#include "support/effort.h"
#include "support/parallel.h"

namespace renorm::test {
namespace {

using kernels::Activation;
using kernels::BFloat16;
using kernels::Layout;
using kernels::ParallelFor;
using kernels::Stat;
namespace reference = kernels::reference;

constexpr int64_t kCases = 300;          // per data type
constexpr int64_t kCasesPerTarget = 50;  // per data type and instruction set

Buffer<double> doubles(int64_t count) { return {count, 0, Buffer<double>::Use::kOutput}; }

// A case as one group without a residual: the batch of one process.
Case as_one_group(Case c) {
  c.groups = kernels::contiguous_groups(c.shape.n, c.shape.n);
  c.has_residual = false;
  return c;
}

template <typename T>
kernels::Apply<T> apply_problem(const Case& c, Arrays<T>& a) {
  return {c.layout,           c.shape,       c.activation,        a.x.data(),
          a.weight.data(),    a.bias.data(), a.batch_mean.data(), a.batch_mean_low.data(),
          a.batch_std.data(), a.r.data(),    a.d.data(),          a.y.data()};
}

template <typename T>
kernels::ApplyBackward<T> apply_backward_problem(const Case& c, Arrays<T>& a) {
  return {c.layout,
          c.shape,
          c.activation,
          a.x.data(),
          a.dy.data(),
          a.weight.data(),
          a.bias.data(),
          a.batch_mean.data(),
          a.batch_mean_low.data(),
          a.batch_std.data(),
          a.r.data(),
          a.d.data()};
}

// Where the value before ReLU is within rounding of 0, both masks are right: dy is 0 there.
template <typename T>
void silence_uncertain_masks(Case c, Arrays<T>* fast, Arrays<double>* expected) {
  if (c.activation != Activation::kRelu) return;
  c.activation = Activation::kNone;
  reference::apply(apply_problem(c, *expected));
  const double margin = kTolerance<Stat<T>> * scale_of(expected->y);
  for (int64_t i = 0; i < expected->y.size(); ++i) {
    if (std::abs(expected->y[i]) > margin) continue;
    fast->dy[i] = narrow<T>(0.0);
    expected->dy[i] = 0.0;
  }
}

template <typename T>
void expect_statistics(const Case& c, const ParallelFor& parallel_for, Arrays<T>& fast,
                       Arrays<double>& wide) {
  const auto values = static_cast<double>(c.shape.n * c.shape.s);
  Buffer<double> mean = doubles(c.shape.c), m2 = doubles(c.shape.c);
  Buffer<double> expected_mean = doubles(c.shape.c), expected_m2 = doubles(c.shape.c);
  kernels::statistics<T>({c.layout, c.shape, fast.x.data(), mean.data(), m2.data()}, parallel_for);
  reference::statistics({c.layout, c.shape, wide.x.data(), expected_mean.data(), expected_m2.data()});
  ASSERT_TRUE(near("mean", mean, expected_mean, kTolerance<Stat<T>>));
  ASSERT_TRUE(near("m2", m2, expected_m2, kTolerance<Stat<T>>, values));
}

template <typename T>
void expect_gradient(const Case& c, const ParallelFor& parallel_for, Arrays<T>& fast, Arrays<double>& wide) {
  const double count = 2.0 * static_cast<double>(c.shape.n * c.shape.s);  // a part of a larger group
  const double sum_scale = std::sqrt(count);
  Buffer<double> dy = doubles(c.shape.c), dy_x = doubles(c.shape.c);
  Buffer<double> expected_dy = doubles(c.shape.c), expected_dy_x = doubles(c.shape.c);
  kernels::backward_sums(apply_backward_problem(c, fast), {dy.data(), dy_x.data()}, parallel_for);
  reference::backward_sums(apply_backward_problem(c, wide), {expected_dy.data(), expected_dy_x.data()});
  ASSERT_TRUE(near("sum of dy", dy, expected_dy, kTolerance<Stat<T>>, sum_scale));
  ASSERT_TRUE(near("sum of dy x", dy_x, expected_dy_x, kTolerance<Stat<T>>, sum_scale));
  kernels::backward_apply(apply_backward_problem(c, fast), {expected_dy.data(), expected_dy_x.data()}, count,
                          fast.dx.data(), parallel_for);
  reference::backward_apply(apply_backward_problem(c, wide), {expected_dy.data(), expected_dy_x.data()},
                            count, wide.dx.data());
  ASSERT_TRUE(near("dx", fast.dx, wide.dx, kTolerance<T>));
}

// Statistics of the whole batch by the reference; in the type of the statistics for both sides.
template <typename T>
void share_statistics(const Case& c, Arrays<T>* fast, Arrays<double>* wide) {
  reference::forward(forward_problem(c, *wide));
  for (int64_t i = 0; i < c.shape.c; ++i) {
    const auto share = [i](Buffer<double>& from, Buffer<Stat<T>>& to) {
      to[i] = static_cast<Stat<T>>(from[i]);
      from[i] = to[i];
    };
    const double mean = wide->batch_mean[i];
    share(wide->batch_mean, fast->batch_mean);
    wide->batch_mean_low[i] = mean - wide->batch_mean[i];
    share(wide->batch_mean_low, fast->batch_mean_low);
    share(wide->batch_std, fast->batch_std);
    share(wide->r, fast->r);
    share(wide->d, fast->d);
  }
}

template <typename T>
void expect_agreement(const Case& drawn, const ParallelFor& parallel_for) {
  const Case c = as_one_group(drawn);
  SCOPED_TRACE(describe(c));
  Arrays<T> fast = draw_arrays<T>(c);
  Arrays<double> wide = widen(c, fast);
  ASSERT_NO_FATAL_FAILURE(expect_statistics(c, parallel_for, fast, wide));
  share_statistics(c, &fast, &wide);
  silence_uncertain_masks(c, &fast, &wide);
  kernels::apply(apply_problem(c, fast), parallel_for);
  reference::apply(apply_problem(c, wide));
  ASSERT_TRUE(near("y", fast.y, wide.y, kTolerance<T>));
  ASSERT_NO_FATAL_FAILURE(expect_gradient(c, parallel_for, fast, wide));
}

template <typename T>
void expect_agreements(int64_t cases, uint64_t seed) {
  Random random(seed);
  for (int64_t k = 0; k < cases; ++k) {
    ASSERT_NO_FATAL_FAILURE(expect_agreement<T>(draw_case(random), in_pieces(random.integer(1, 9))));
  }
}

template <typename T>
class Parts : public ::testing::Test {};
using DataTypes = ::testing::Types<float, double, BFloat16>;
TYPED_TEST_SUITE(Parts, DataTypes);

TYPED_TEST(Parts, AgreeWithTheReferenceInGeneratedCases) {
  expect_agreements<TypeParam>(case_count(kCases), 400 + sizeof(TypeParam));
}

// More than one piece of 65,536 values per channel, and outputs that bypass the cache.
TYPED_TEST(Parts, AgreeWithTheReferenceForManyValues) {
  Random random(410);
  const kernels::Shape shapes[] = {{3, 2, 70001}, {40, 33, 3137}, {70001, 3, 1}};
  for (const kernels::Shape& shape : shapes) {
    for (const Layout layout : {Layout::kNcs, Layout::kNsc}) {
      if (shape.s == 1 && layout == Layout::kNcs) continue;
      Case c;
      c.layout = layout;
      c.shape = shape;
      c.activation = random.chance(0.5) ? Activation::kRelu : Activation::kNone;
      c.r_max = 1.5;
      c.d_max = 0.5;
      c.mean_over_std = 30.0;
      c.seed = random.bits();
      ASSERT_NO_FATAL_FAILURE(expect_agreement<TypeParam>(c, in_pieces(5, Order::kReversed)));
    }
  }
}

TYPED_TEST(Parts, DoNotDependOnTheDivisionOfTheWork) {
  using T = TypeParam;
  Random random(420);
  for (int64_t k = 0; k < case_count(kCasesPerTarget); ++k) {
    const Case c = as_one_group(draw_case(random));
    Arrays<T> a = draw_arrays<T>(c);
    Arrays<double> wide = widen(c, a);
    share_statistics(c, &a, &wide);
    std::vector<std::vector<double>> results;
    for (const ParallelFor& parallel_for : {serial(), in_pieces(7), in_pieces(3, Order::kReversed)}) {
      std::vector<double> all(static_cast<size_t>(4 * c.shape.c));
      double* data = all.data();
      kernels::statistics<T>({c.layout, c.shape, a.x.data(), data, data + c.shape.c}, parallel_for);
      kernels::backward_sums(apply_backward_problem(c, a), {data + 2 * c.shape.c, data + 3 * c.shape.c},
                             parallel_for);
      results.push_back(std::move(all));
    }
    ASSERT_EQ(results[0], results[1]) << describe(c);
    ASSERT_EQ(results[0], results[2]) << describe(c);
  }
}

class PartTargets : public ::testing::Test {
 protected:
  void TearDown() override { kernels::force_simd_target(""); }
};

TEST_F(PartTargets, EachRunnableTargetAgrees) {
  for (const std::string& target : kernels::runnable_simd_targets()) {
    SCOPED_TRACE(target);
    kernels::force_simd_target(target);
    ASSERT_NO_FATAL_FAILURE(expect_agreements<float>(case_count(kCasesPerTarget), 431));
    ASSERT_NO_FATAL_FAILURE(expect_agreements<double>(case_count(kCasesPerTarget), 432));
    ASSERT_NO_FATAL_FAILURE(expect_agreements<BFloat16>(case_count(kCasesPerTarget), 433));
  }
}

// Rows of statistics of one channel, and the merged result.
struct Merged {
  double mean, std, r, d, count;
};
Merged merge_rows(const std::vector<double>& rows, double eps) {
  const double running_mean = 1.0, running_std = 2.0;
  double mean, low, std, r, d;
  const double count =
      kernels::merge<double>({rows.data(), static_cast<int64_t>(rows.size() / 3), 1, eps, 3.0, 5.0,
                              &running_mean, &running_std, &mean, &low, &std, &r, &d});
  return {mean + low, std, r, d, count};
}

TEST(Merge, IsTheStatisticsOfAllValuesTogether) {
  Random random(440);
  for (const double offset : {0.0, 1e6}) {
    std::vector<double> all, rows;
    for (const int64_t share : {5, 0, 1, 130}) {  // a part may have no value
      std::vector<double> x;
      for (int64_t i = 0; i < share; ++i) x.push_back(offset + random.uniform(-1.0, 1.0));
      all.insert(all.end(), x.begin(), x.end());
      double mean = 0.0, m2 = 0.0;
      if (share > 0) reference::statistics({Layout::kNcs, {share, 1, 1}, x.data(), &mean, &m2});
      rows.insert(rows.end(), {static_cast<double>(share), mean, m2});
    }
    double mean, m2;
    const auto count = static_cast<int64_t>(all.size());
    reference::statistics({Layout::kNcs, {count, 1, 1}, all.data(), &mean, &m2});
    const Merged merged = merge_rows(rows, 1e-5);
    const double std = std::sqrt(m2 / static_cast<double>(count) + 1e-5);
    EXPECT_EQ(merged.count, static_cast<double>(count));
    // Means near 1e6 are rounded to 1e-10.
    const double tolerance = 1e-14 + 1e-15 * offset;
    EXPECT_NEAR(merged.mean, mean, tolerance);
    EXPECT_NEAR(merged.std, std, tolerance);
    EXPECT_NEAR(merged.r, std / 2.0 < 1.0 / 3.0 ? 1.0 / 3.0 : std / 2.0, tolerance);
    EXPECT_NEAR(merged.d, std::min((mean - 1.0) / 2.0, 5.0), tolerance);
  }
}

TEST(Merge, OfNothingIsNotANumber) {
  const Merged merged = merge_rows({0.0, 0.0, 0.0, 0.0, 0.0, 0.0}, 1e-5);
  EXPECT_EQ(merged.count, 0.0);
  EXPECT_TRUE(std::isnan(merged.mean));
  EXPECT_TRUE(std::isnan(merged.std));
}

}  // namespace
}  // namespace renorm::test
