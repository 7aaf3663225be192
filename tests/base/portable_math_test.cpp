// The portable functions against the library's, whose error is below one unit in the last place, and against
// bits that every machine must give.
#include "base/portable_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace renorm::testing {
namespace {

constexpr double kTolerance = 1e-14;  // relative
constexpr int kPoints = 100000;
constexpr uint64_t kSeed = 20170417;

double relative_error(double value, double expected) {
  return expected == 0.0 ? std::fabs(value) : std::fabs((value - expected) / expected);
}

TEST(PortableMath, LogMatchesTheLibrary) {
  RandomStream stream(kSeed, Purpose::kModel, 1);
  double worst = 0.0;
  for (int i = 0; i < kPoints; ++i) {
    const double wide = std::ldexp(1.0 + stream.uniform(), static_cast<int>(stream.below(2046)) - 1022);
    const double near_one =
        1.0 + stream.uniform(-0.5, 0.5) * std::ldexp(1.0, -static_cast<int>(stream.below(52)));
    worst = std::max({worst, relative_error(portable_log(wide), std::log(wide)),
                      relative_error(portable_log(near_one), std::log(near_one))});
  }
  EXPECT_LE(worst, kTolerance);
  EXPECT_EQ(portable_log(1.0), 0.0);
  for (const double x : {std::numeric_limits<double>::min(), std::numeric_limits<double>::max(),
                         std::sqrt(0.5), std::nextafter(1.0, 0.0), std::nextafter(1.0, 2.0)}) {
    EXPECT_LE(relative_error(portable_log(x), std::log(x)), kTolerance) << x;
  }
}

TEST(PortableMath, ExpMatchesTheLibrary) {
  RandomStream stream(kSeed, Purpose::kModel, 2);
  double worst = 0.0;
  for (int i = 0; i < kPoints; ++i) {
    for (const double width : {700.0, 1.0, 1e-5}) {
      const double x = stream.uniform(-width, width);
      worst = std::max(worst, relative_error(portable_exp(x), std::exp(x)));
    }
  }
  EXPECT_LE(worst, kTolerance);
  EXPECT_EQ(portable_exp(0.0), 1.0);
  for (const double x : {-700.0, 700.0, std::log(2.0) / 2, -std::log(2.0) / 2}) {
    EXPECT_LE(relative_error(portable_exp(x), std::exp(x)), kTolerance) << x;
  }
}

TEST(PortableMath, SinAndCosMatchTheLibrary) {
  RandomStream stream(kSeed, Purpose::kModel, 3);
  double worst = 0.0;
  for (int i = 0; i < kPoints; ++i) {
    for (const double width : {100.0, 1.0, 1e-8}) {
      const double x = stream.uniform(-width, width);
      const SinCos both = portable_sin_cos(x);
      worst = std::max({worst, relative_error(both.sin, std::sin(x)), relative_error(both.cos, std::cos(x))});
    }
  }
  EXPECT_LE(worst, kTolerance);
}

// Where one of them almost vanishes nearly all digits of the argument cancel.
TEST(PortableMath, SinAndCosKeepTheirDigitsNearTheirZeros) {
  for (int k = -63; k <= 63; ++k) {
    const double zero = k * std::acos(0.0);
    for (const double x : {std::nextafter(zero, -1000.0), zero, std::nextafter(zero, 1000.0)}) {
      const SinCos both = portable_sin_cos(x);
      EXPECT_LE(relative_error(both.sin, std::sin(x)), kTolerance) << k;
      EXPECT_LE(relative_error(both.cos, std::cos(x)), kTolerance) << k;
    }
  }
}

TEST(PortableMath, GivesTheSameBitsOnEveryMachine) {
  EXPECT_EQ(portable_log(0.3), -0x1.34378fcbda721p+0);
  EXPECT_EQ(portable_log(3.0), 0x1.193ea7aad030bp+0);
  EXPECT_EQ(portable_log(1e-300), -0x1.5963447f87fb5p+9);
  EXPECT_EQ(portable_log(0x1.fffffffffffffp-1), -0x1p-53);
  EXPECT_EQ(portable_exp(0.3), 0x1.599058c8c1a96p+0);
  EXPECT_EQ(portable_exp(-3.0), 0x1.97db0ccceb0afp-5);
  EXPECT_EQ(portable_exp(699.5), 0x1.1f0df6d72215ep+1009);
  EXPECT_EQ(portable_sin_cos(0.3).sin, 0x1.2e9cd95baba33p-2);
  EXPECT_EQ(portable_sin_cos(0.3).cos, 0x1.e921dd42f09bap-1);
  EXPECT_EQ(portable_sin_cos(99.5).sin, -0x1.b730f39eab82bp-1);
  EXPECT_EQ(portable_sin_cos(99.5).cos, 0x1.0729e0f90c251p-1);
  EXPECT_EQ(portable_sin_cos(22.0).sin, -0x1.220a29f6eb9f4p-7);
}

}  // namespace
}  // namespace renorm::testing
