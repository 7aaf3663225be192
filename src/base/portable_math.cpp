#include "base/portable_math.h"

#include <cmath>
#include <cstddef>

namespace renorm {
namespace {

// Only library functions with exact results are used: frexp, ldexp, floor.

// ln 2 and pi / 2 in parts with so many zero bits at the end that their products with the small whole numbers
// below are exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kHalfPi[] = {0x1.921fb544p+0, 0x1.0b4611a6p-34, 0x1.3198a2ep-69, 0x1.b839a252049c1p-104};

constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kSqrtHalf = 0x1.6a09e667f3bcdp-1;

// 1 + z / a + z^2 / (a b) + z^3 / (a b c) + ... for the divisors a, b, c, ...
template <size_t kCount>
double nested_series(double z, const double (&divisors)[kCount]) {
  double sum = 1.0;
  for (size_t i = kCount; i-- > 0;) sum = 1.0 + sum * z / divisors[i];
  return sum;
}

constexpr double kExpDivisors[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
// The negative signs alternate the series.
constexpr double kSinDivisors[] = {-2.0 * 3,   -4.0 * 5,   -6.0 * 7,   -8.0 * 9,  -10.0 * 11,
                                   -12.0 * 13, -14.0 * 15, -16.0 * 17, -18.0 * 19};
constexpr double kCosDivisors[] = {-1.0 * 2,   -3.0 * 4,   -5.0 * 6,   -7.0 * 8,  -9.0 * 10,
                                   -11.0 * 12, -13.0 * 14, -15.0 * 16, -17.0 * 18};

// The last term of the series of atanh(s) / s that matters for s * s <= 0.0295.
constexpr int kLastLogTerm = 12;

}  // namespace

// x = 2^k m with m around 1, and log m = 2 atanh((m - 1) / (m + 1)).
double portable_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < kSqrtHalf) {
    m = 2.0 * m;
    --exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double sum = 0.0;
  for (int i = kLastLogTerm; i >= 0; --i) sum = sum * z + 1.0 / (2 * i + 1);
  const double k = exponent;
  return k * kLn2High + (2.0 * s * sum + k * kLn2Low);
}

double portable_exp(double x) {
  const double k = std::floor(x * kInverseLn2 + 0.5);
  const double rest = (x - k * kLn2High) - k * kLn2Low;
  return std::ldexp(nested_series(rest, kExpDivisors), static_cast<int>(k));
}

SinCos portable_sin_cos(double x) {
  const double k = std::floor(x * kTwoOverPi + 0.5);
  double rest = x;
  for (const double part : kHalfPi) rest -= k * part;
  const double z = rest * rest;
  const double sin = rest * nested_series(z, kSinDivisors);
  const double cos = nested_series(z, kCosDivisors);
  switch (static_cast<int>(k) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

}  // namespace renorm
