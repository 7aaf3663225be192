// Conversions between double and the data types of the kernels.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/problem.h"

namespace renorm::test {

inline double widen(double value) { return value; }
inline double widen(float value) { return static_cast<double>(value); }
inline double widen(kernels::BFloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return static_cast<double>(result);
}

// Rounds to nearest, ties to even.
inline kernels::BFloat16 to_bfloat16(float value) {
  if (value != value) return {0x7fc0};
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits += 0x7fffU + ((bits >> 16) & 1U);
  return {static_cast<uint16_t>(bits >> 16)};
}

template <typename T>
T narrow(double value) {
  return static_cast<T>(value);
}
template <>
inline kernels::BFloat16 narrow<kernels::BFloat16>(double value) {
  return to_bfloat16(static_cast<float>(value));
}

}  // namespace renorm::test
