// The sizes that tests draw from, chosen for typical errors of vector code.
#pragma once

#include <cstdint>
#include <vector>

namespace renorm::test {

// One element, primes, and each vector width (4, 8, 16, 32) less and plus one.
inline const std::vector<int64_t>& edge_sizes() {
  static const std::vector<int64_t> sizes = {1,  2,  3,  4,  5,  7,  8,  9,  11, 13, 15, 16,
                                             17, 19, 23, 29, 31, 32, 33, 37, 49, 61, 64, 65};
  return sizes;
}

// Rows around and beyond one and two chunks of 2048 values.
inline const std::vector<int64_t>& long_sizes() {
  static const std::vector<int64_t> sizes = {2047, 2048, 2049, 2053, 2063, 4095, 4096, 4097, 4099, 5003};
  return sizes;
}

// Numbers of rows around and beyond the blocks that kernels merge.
inline const std::vector<int64_t>& many_sizes() {
  static const std::vector<int64_t> sizes = {63, 64, 65, 96, 127, 128, 129, 131, 192, 257, 512, 1000, 1009};
  return sizes;
}

// Channel counts of wide layers, powers of two and not.
inline const std::vector<int64_t>& wide_sizes() {
  static const std::vector<int64_t> sizes = {96, 127, 128, 129, 192, 251, 256, 257, 320, 509, 512, 513, 768};
  return sizes;
}

}  // namespace renorm::test
