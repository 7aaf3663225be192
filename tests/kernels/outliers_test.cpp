// Channels that are constant but for a few outliers: a shift taken from an outlier would cancel away digits
// of the variance.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cases.h"
#include "kernels/kernels.h"
#include "kernels/reference/reference.h"
#include "support/effort.h"
#include "support/parallel.h"

namespace renorm::test {
namespace {

using kernels::Layout;

constexpr int64_t kCases = 3000;
constexpr int64_t kLongCases = 40;
// Of batch_std, for both statistics.
constexpr double kTolerance = 1e-5;
constexpr int64_t kMaxOutliers = 9;

// Few and many values per channel; rows shorter than a vector, between chunks, and longer than a chunk.
const std::vector<Case>& shapes() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> list;
    const auto add = [&](kernels::Shape shape, int64_t group_size) {
      for (const Layout layout : {Layout::kNcs, Layout::kNsc}) {
        Case c;
        c.layout = layout;
        c.shape = shape;
        c.groups = list.size() % 4 < 2 ? kernels::contiguous_groups(shape.n, group_size)
                                       : kernels::strided_groups(shape.n, group_size);
        c.eps = 1e-12;
        list.push_back(c);
      }
    };
    add({4, 3, 49}, 4);
    add({8, 2, 196}, 4);
    add({2, 3, 1024}, 2);
    add({1, 2, 5003}, 1);
    add({32, 3, 64}, 32);
    add({12, 3, 81}, 6);
    add({6, 1, 2049}, 3);
    add({600, 5, 1}, 600);
    add({64, 17, 1}, 32);
    add({700, 2, 3}, 350);
    add({68, 9, 1}, 17);
    add({48, 9, 1}, 24);
    return list;
  }();
  return cases;
}

// The offsets of `count` values of a channel: the first, the last, neighbours anywhere, or scattered.
std::vector<int64_t> draw_places(Random& random, const std::vector<int64_t>& channel, int64_t count) {
  const auto size = static_cast<int64_t>(channel.size());
  const int64_t kind = random.integer(0, 3);
  const int64_t first = kind == 0 ? 0 : kind == 1 ? size - count : random.integer(0, size - count);
  std::vector<int64_t> places;
  for (int64_t k = 0; k < count; ++k) {
    places.push_back(channel[static_cast<size_t>(kind == 3 ? random.integer(0, size - 1) : first + k)]);
  }
  return places;
}

// Every channel of every group gets its own constant and its own outliers.
void draw_outliers(Random& random, const Case& c, Buffer<float>* x) {
  for (int64_t group = 0; group < c.groups.count; ++group) {
    for (int64_t channel = 0; channel < c.shape.c; ++channel) {
      std::vector<int64_t> offsets;
      for_each_value(c, group, channel, [&](int64_t i) { offsets.push_back(i); });
      const double constant = random.chance(0.3) ? 0.0 : 3.0 * random.normal();
      const double size = std::exp(random.uniform(-3.0, 7.0));
      const bool alike = random.chance(0.5);
      for (const int64_t i : offsets) (*x)[i] = static_cast<float>(constant);
      for (const int64_t i : draw_places(random, offsets, random.integer(1, kMaxOutliers))) {
        (*x)[i] = static_cast<float>(constant + size * (alike ? 1.0 : random.normal()));
      }
    }
  }
}

void expect_accurate(const Case& c, const Arrays<float>& fast, const Arrays<double>& expected) {
  for (int64_t i = 0; i < statistics_of(c); ++i) {
    const double mean = widen(fast.batch_mean[i]) + widen(fast.batch_mean_low[i]);
    const double bound = kTolerance * expected.batch_std[i];
    ASSERT_NEAR(mean, expected.batch_mean[i], bound) << "batch_mean " << i << " of " << describe(c);
    ASSERT_NEAR(widen(fast.batch_std[i]), expected.batch_std[i], bound)
        << "batch_std " << i << " of " << describe(c);
  }
}

// Restores the choice by CPU when a test ends, whatever its result.
class Outliers : public ::testing::Test {
 protected:
  void TearDown() override { kernels::force_simd_target(""); }
};

// `c` with new values, on every target.
void expect_accurate_on_targets(Case c, Random& random) {
  c.seed = random.bits();
  Arrays<float> fast = draw_arrays<float>(c);
  draw_outliers(random, c, &fast.x);
  Arrays<double> expected = widen(c, fast);
  kernels::reference::forward(forward_problem(c, expected));
  for (const std::string& target : kernels::runnable_simd_targets()) {
    SCOPED_TRACE(target);
    kernels::force_simd_target(target);
    kernels::forward(forward_problem(c, fast), serial());
    ASSERT_NO_FATAL_FAILURE(expect_accurate(c, fast, expected));
  }
}

TEST_F(Outliers, CostFloatStatisticsNoAccuracyOnAnyTarget) {
  Random random(800);
  for (int64_t k = 0; k < case_count(kCases); ++k) {
    SCOPED_TRACE("case " + std::to_string(k));
    const Case& c = shapes()[static_cast<size_t>(k) % shapes().size()];
    ASSERT_NO_FATAL_FAILURE(expect_accurate_on_targets(c, random));
  }
}

// Few channels with rows so long that they are taken in pieces.
TEST_F(Outliers, CostNoAccuracyInPiecesOfLongRows) {
  Random random(801);
  for (int64_t k = 0; k < case_count(kLongCases); ++k) {
    SCOPED_TRACE("case " + std::to_string(k));
    Case c;
    c.shape = k % 2 == 0 ? kernels::Shape{1, 1, 200003} : kernels::Shape{4, 3, 65537};
    c.groups = kernels::contiguous_groups(c.shape.n, c.shape.n);
    c.eps = 1e-12;
    ASSERT_NO_FATAL_FAILURE(expect_accurate_on_targets(c, random));
  }
}

}  // namespace
}  // namespace renorm::test
