// The streams are pinned bit by bit: data sets, epochs and initial weights of every machine hang on them. The
// numbers below were also computed by a second implementation, in Python's integers and floats.
#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace renorm::testing {
namespace {

constexpr int kMany = 1000000;

RandomStream first_stream() { return {1, Purpose::kStrokeClass, 0}; }
RandomStream second_stream() { return {0, Purpose::kEpoch, 7}; }
RandomStream third_stream() {
  return {std::numeric_limits<uint64_t>::max(), Purpose::kAugment, 123456789012345};
}

template <typename Number, typename Draw>
void expect_numbers(RandomStream stream, const std::vector<Number>& expected, const Draw& draw) {
  for (const Number& number : expected) EXPECT_EQ(draw(stream), number);
}

TEST(Random, BitsAreTheSameOnEveryMachine) {
  const auto bits = [](RandomStream& stream) { return stream.bits(); };
  expect_numbers<uint64_t>(
      first_stream(), {0x95e8c95cb1098984, 0x0c5c66c4775c0d35, 0x325e4c90fc67b1a6, 0xb03add8e86374b61}, bits);
  expect_numbers<uint64_t>(second_stream(),
                           {0xcd77424c9d35a8b8, 0xe88f7fa3997fbaec, 0xd8f4be489dcd7790, 0x478a8377bd375fb0},
                           bits);
  expect_numbers<uint64_t>(
      third_stream(), {0xed24f3188c5cd8ab, 0x6872d4f8960445bb, 0x6cef120bde84adc2, 0x1779805bc0b83107}, bits);
}

TEST(Random, NumbersAreTheSameOnEveryMachine) {
  expect_numbers<double>(first_stream(), {0x1.2bd192b962131p-1, 0x1.8b8cd88eeb81p-5, 0x1.92f26487e33d8p-3},
                         [](RandomStream& stream) { return stream.uniform(); });
  const auto normal = [](RandomStream& stream) { return stream.normal(); };
  expect_numbers<double>(
      first_stream(),
      {0x1.b9c5432b27b6ap-4, -0x1.2376589b16e7ap-1, -0x1.f8d40d95f36fbp-1, 0x1.39a2092f4f23cp-1}, normal);
  expect_numbers<double>(
      second_stream(),
      {0x1.7d6f2db6d0803p-1, -0x1.e42e1fa251d59p-2, -0x1.4b0f913f76e95p-4, -0x1.3e835efc6951dp-2}, normal);
  expect_numbers<double>(
      third_stream(),
      {0x1.71f4774e6ac36p-1, -0x1.3f51b85242b32p-3, -0x1.3d317b15df6c3p-3, -0x1.b2bbcca692708p-1}, normal);
  expect_numbers<int64_t>(first_stream(), {124, 149, 182, 33, 137, 218},
                          [](RandomStream& stream) { return stream.below(1000); });
}

TEST(Random, OrdersAreTheSameOnEveryMachine) {
  RandomStream first = first_stream();
  EXPECT_EQ(permutation(10, first), (std::vector<int64_t>{4, 5, 8, 2, 9, 3, 1, 7, 6, 0}));
  RandomStream third = third_stream();
  EXPECT_EQ(choose(5, 1000000000, third),
            (std::vector<int64_t>{910164139, 949672542, 416266350, 692580631, 529690142}));
}

TEST(Random, StreamsDifferInSeedPurposeAndIndex) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (uint64_t purpose = 1; purpose <= 9; ++purpose) {
      for (uint64_t index = 0; index < 50; ++index) {
        seen.insert(RandomStream(seed, static_cast<Purpose>(purpose), index).bits());
      }
    }
  }
  EXPECT_EQ(seen.size(), size_t{20} * 9 * 50);
}

// Limits of five standard deviations of the mean of that many numbers.
TEST(Random, UniformHasItsMoments) {
  RandomStream stream(3, Purpose::kModel);
  double sum = 0.0;
  double squares = 0.0;
  for (int i = 0; i < kMany; ++i) {
    const double x = stream.uniform();
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x - 0.5;
    squares += (x - 0.5) * (x - 0.5);
  }
  EXPECT_NEAR(sum / kMany, 0.0, 5.0 * std::sqrt(1.0 / 12 / kMany));
  EXPECT_NEAR(squares / kMany, 1.0 / 12, 5.0 * std::sqrt(1.0 / 180 / kMany));
}

TEST(Random, UniformStaysInItsInterval) {
  RandomStream stream(3, Purpose::kModel, 1);
  for (int i = 0; i < 1000; ++i) {
    const double x = stream.uniform(-2.0, 5.0);
    EXPECT_GE(x, -2.0);
    EXPECT_LT(x, 5.0);
  }
}

TEST(Random, NormalHasItsMoments) {
  RandomStream stream(4, Purpose::kModel);
  double powers[5] = {};
  double neighbours = 0.0;
  double last = 0.0;
  int beyond_two = 0;
  for (int i = 0; i < kMany; ++i) {
    const double x = stream.normal();
    double power = 1.0;
    for (double& sum : powers) {
      sum += power / kMany;
      power *= x;
    }
    neighbours += x * last / kMany;
    last = x;
    beyond_two += std::fabs(x) > 2.0 ? 1 : 0;
  }
  const double deviation = 1.0 / std::sqrt(kMany);  // of the mean of numbers with variance 1
  EXPECT_NEAR(powers[1], 0.0, 5.0 * deviation);
  EXPECT_NEAR(powers[2], 1.0, 5.0 * std::sqrt(2.0) * deviation);
  EXPECT_NEAR(powers[3], 0.0, 5.0 * std::sqrt(15.0) * deviation);
  EXPECT_NEAR(powers[4], 3.0, 5.0 * std::sqrt(96.0) * deviation);
  EXPECT_NEAR(neighbours, 0.0, 5.0 * deviation);
  EXPECT_NEAR(static_cast<double>(beyond_two) / kMany, std::erfc(std::sqrt(2.0)), 5.0 * 0.21 * deviation);
}

TEST(Random, BelowIsFair) {
  RandomStream stream(5, Purpose::kModel);
  int counts[7] = {};
  for (int i = 0; i < 700000; ++i) ++counts[stream.below(7)];
  double chi_square = 0.0;
  for (const int count : counts) chi_square += (count - 100000.0) * (count - 100000.0) / 100000.0;
  EXPECT_LT(chi_square, 30.0);  // 6 degrees of freedom: exceeded once in 25,000 seeds
}

// With n of three quarters of all numbers a remainder without rejection would prefer the lower third by two.
TEST(Random, BelowIsFairForHugeRanges) {
  RandomStream stream(6, Purpose::kModel);
  const int64_t n = int64_t{3} << 61;
  int lower = 0;
  for (int i = 0; i < 30000; ++i) lower += stream.below(n) < n / 3 ? 1 : 0;
  EXPECT_NEAR(lower, 10000, 5 * 82);
  EXPECT_EQ(stream.below(1), 0);
}

TEST(Random, EveryOrderIsEquallyLikely) {
  std::map<std::vector<int64_t>, int> counts;
  for (uint64_t i = 0; i < 60000; ++i) {
    RandomStream stream(7, Purpose::kEpoch, i);
    ++counts[permutation(3, stream)];
  }
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& entry : counts) EXPECT_NEAR(entry.second, 10000, 5 * 92);
}

TEST(Random, ChoosesDifferentNumbers) {
  for (const int64_t n : {1, 2, 10, 1000}) {
    RandomStream stream(8, Purpose::kMinibatch, static_cast<uint64_t>(n));
    RandomStream same = stream;
    const std::vector<int64_t> all = choose(n, n, stream);
    EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), static_cast<size_t>(n));
    EXPECT_EQ(*std::min_element(all.begin(), all.end()), 0);
    EXPECT_EQ(*std::max_element(all.begin(), all.end()), n - 1);
    EXPECT_EQ(all, permutation(n, same));
  }
  RandomStream stream(8, Purpose::kMinibatch);
  EXPECT_TRUE(choose(0, 0, stream).empty());
  EXPECT_TRUE(permutation(0, stream).empty());
}

TEST(Random, ChoiceIsFair) {
  int counts[5] = {};
  for (uint64_t i = 0; i < 50000; ++i) {
    RandomStream stream(9, Purpose::kMinibatch, i);
    for (const int64_t number : choose(2, 5, stream)) ++counts[number];
  }
  for (const int count : counts) EXPECT_NEAR(count, 20000, 5 * 110);
}

}  // namespace
}  // namespace renorm::testing
