// The fast kernels against the reference, on the best instruction set and on each of the others.
#include "agreement.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "support/effort.h"
#include "support/parallel.h"

namespace renorm::test {
namespace {

using kernels::Activation;
using kernels::BFloat16;
using kernels::Layout;
using DataTypes = ::testing::Types<float, double, BFloat16>;

constexpr int64_t kCases = 2000;          // per data type
constexpr int64_t kCasesPerTarget = 150;  // per data type and instruction set

// The result does not depend on how the work is divided: determinism_test.cpp tests that.
kernels::ParallelFor draw_parallel_for(Random& random) {
  switch (random.integer(0, 2)) {
    case 0:
      return serial();
    case 1:
      return in_pieces(random.integer(2, 9));
    default:
      return in_pieces(random.integer(2, 50), Order::kReversed);
  }
}

template <typename T>
void expect_agreement(int64_t cases, uint64_t seed) {
  Random random(seed);
  for (int64_t k = 0; k < cases; ++k) {
    const Case c = draw_case(random);
    ASSERT_TRUE(agrees<T>(c, draw_parallel_for(random))) << "  case " << k;
  }
}

template <typename T>
class KernelAgreement : public ::testing::Test {};
TYPED_TEST_SUITE(KernelAgreement, DataTypes);

TYPED_TEST(KernelAgreement, HoldsInGeneratedCases) {
  expect_agreement<TypeParam>(case_count(kCases), 100 + sizeof(TypeParam));
}

// Outputs above 8 MB take stores that bypass the cache: 4.3 million values reach that in every type.
struct Large {
  Layout layout;
  kernels::Shape shape;
  int64_t group_size;
  bool misaligned;
};

// Outputs so large that they are written past the cache.
template <typename T>
void expect_large_agreement(const std::vector<Large>& list) {
  Random random(200);
  for (const Large& large : list) {
    Case c;
    c.layout = large.layout;
    c.shape = large.shape;
    // A double is four times as large as a bfloat16, so fewer values are enough.
    if (sizeof(T) == sizeof(double)) c.shape.n = (c.shape.n + 1) / 2;
    const int64_t size = c.shape.n % large.group_size == 0 ? large.group_size : c.shape.n;
    c.groups = kernels::contiguous_groups(c.shape.n, size);
    c.misaligned = large.misaligned;
    c.activation = large.misaligned ? Activation::kRelu : Activation::kNone;
    c.r_max = 1.5;
    c.d_max = 0.5;
    c.seed = random.bits();
    for (const bool has_residual : {false, true}) {
      c.has_residual = has_residual;
      ASSERT_TRUE(agrees<T>(c, in_pieces(3)));
    }
  }
}

TYPED_TEST(KernelAgreement, HoldsForOutputsBeyondTheCache) {
  std::vector<Large> list = {{Layout::kNcs, {8, 67, 8191}, 8, false},
                             {Layout::kNcs, {64, 1031, 67}, 16, true},
                             {Layout::kNcs, {48, 2, 50021}, 48, true},
                             {Layout::kNsc, {8, 127, 4357}, 4, true},
                             {Layout::kNsc, {4201, 1024, 1}, 4201, false}};
  list.resize(static_cast<size_t>(case_count(static_cast<int64_t>(list.size()))));
  expect_large_agreement<TypeParam>(list);
}

// Groups of up to 16 rows are taken at once, the next larger ones in two passes.
TYPED_TEST(KernelAgreement, HoldsForManySmallGroups) {
  Random random(210);
  for (const int64_t rows : {1, 2, 3, 4, 7, 8, 15, 16, 17}) {
    for (const int64_t s : {1, 2, 3}) {
      if (rows % s != 0) continue;
      Case c;
      c.layout = Layout::kNsc;
      c.shape = {rows / s * random.integer(1, 40), random.pick(std::vector<int64_t>{1, 5, 16, 33, 530}), s};
      c.groups = random.chance(0.5) ? kernels::contiguous_groups(c.shape.n, rows / s)
                                    : kernels::strided_groups(c.shape.n, rows / s);
      c.activation = random.chance(0.5) ? Activation::kRelu : Activation::kNone;
      c.r_max = 1.5;
      c.d_max = 0.5;
      c.has_residual = random.chance(0.3);
      c.misaligned = random.chance(0.5);
      c.seed = random.bits();
      ASSERT_TRUE(agrees<TypeParam>(c, in_pieces(3)));
    }
  }
}

// One channel or a few are divided along their rows.
TYPED_TEST(KernelAgreement, HoldsForFewChannelsWithLongRows) {
  Random random(220);
  for (const kernels::Shape shape : {kernels::Shape{1, 1, 200003}, {6, 3, 50021}, {2, 8, 70001}}) {
    for (const bool grouped : {false, true}) {
      Case c;
      c.layout = Layout::kNcs;
      c.shape = shape;
      const int64_t size = grouped && shape.n % 2 == 0 ? shape.n / 2 : shape.n;
      c.groups = grouped ? kernels::strided_groups(shape.n, size) : kernels::contiguous_groups(shape.n, size);
      c.activation = grouped ? Activation::kRelu : Activation::kNone;
      c.mean_over_std = 30.0;
      c.has_residual = random.chance(0.5);
      c.misaligned = random.chance(0.5);
      c.seed = random.bits();
      ASSERT_TRUE(agrees<TypeParam>(c, in_pieces(7, Order::kReversed)));
    }
  }
}

// Restores the choice by CPU when a test ends, whatever its result.
class KernelTargets : public ::testing::Test {
 protected:
  void TearDown() override { kernels::force_simd_target(""); }
};

TEST_F(KernelTargets, EachRunnableTargetAgrees) {
  const std::string chosen = kernels::simd_target();
  const std::vector<std::string> targets = kernels::runnable_simd_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(chosen, targets.front());
  for (const std::string& target : targets) {
    SCOPED_TRACE(target);
    kernels::force_simd_target(target);
    ASSERT_EQ(kernels::simd_target(), target);
    ASSERT_NO_FATAL_FAILURE(expect_agreement<float>(case_count(kCasesPerTarget), 301));
    ASSERT_NO_FATAL_FAILURE(expect_agreement<double>(case_count(kCasesPerTarget), 302));
    ASSERT_NO_FATAL_FAILURE(expect_agreement<BFloat16>(case_count(kCasesPerTarget), 303));
    ASSERT_NO_FATAL_FAILURE(expect_large_agreement<BFloat16>({{Layout::kNcs, {8, 67, 8191}, 8, false},
                                                              {Layout::kNcs, {48, 2, 50021}, 24, true},
                                                              {Layout::kNsc, {4201, 1024, 1}, 4201, false}}));
  }
  kernels::force_simd_target("");
  EXPECT_EQ(kernels::simd_target(), chosen);
}

}  // namespace
}  // namespace renorm::test
