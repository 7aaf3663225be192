#include "base/random.h"

#include <cassert>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/portable_math.h"

namespace renorm {
namespace {

// One number of the splitmix64 generator: a bijection that spreads every bit over all others.
uint64_t splitmix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t rotate_left(uint64_t x, int count) { return (x << count) | (x >> (64 - count)); }

}  // namespace

RandomStream::RandomStream(uint64_t seed, Purpose purpose, uint64_t index) {
  uint64_t key = splitmix(splitmix(splitmix(seed) ^ static_cast<uint64_t>(purpose)) ^ index);
  // Four different words, so at most one is zero.
  for (uint64_t& word : state_) {
    word = splitmix(key);
    key += 0x9e3779b97f4a7c15u;
  }
}

uint64_t RandomStream::bits() {
  const uint64_t result = rotate_left(state_[1] * 5, 7) * 9;
  const uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = rotate_left(state_[3], 45);
  return result;
}

int64_t RandomStream::below(int64_t n) {
  assert(n > 0);
  const auto count = static_cast<uint64_t>(n);
  // 2^64 mod n: without these first numbers every remainder is equally frequent.
  const uint64_t surplus = (uint64_t{0} - count) % count;
  uint64_t drawn = bits();
  while (drawn < surplus) drawn = bits();
  return static_cast<int64_t>(drawn % count);
}

double RandomStream::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double RandomStream::uniform(double low, double high) { return low + (high - low) * uniform(); }

// Marsaglia's polar method: a point in the unit disc gives two independent numbers.
double RandomStream::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  double x = 0.0;
  double y = 0.0;
  double square = 0.0;
  while (square >= 1.0 || square == 0.0) {
    x = 2.0 * uniform() - 1.0;
    y = 2.0 * uniform() - 1.0;
    square = x * x + y * y;
  }
  const double factor = std::sqrt(-2.0 * portable_log(square) / square);
  spare_ = y * factor;
  has_spare_ = true;
  return x * factor;
}

std::vector<int64_t> permutation(int64_t n, RandomStream& stream) {
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  for (int64_t i = 0; i + 1 < n; ++i) {
    std::swap(numbers[static_cast<size_t>(i)], numbers[static_cast<size_t>(i + stream.below(n - i))]);
  }
  return numbers;
}

// The first swaps of the same shuffle, on an array of which only moved entries are stored.
std::vector<int64_t> choose(int64_t count, int64_t n, RandomStream& stream) {
  assert(count <= n);
  std::vector<int64_t> chosen;
  chosen.reserve(static_cast<size_t>(count));
  std::unordered_map<int64_t, int64_t> moved;
  const auto at = [&moved](int64_t place) {
    const auto found = moved.find(place);
    return found == moved.end() ? place : found->second;
  };
  for (int64_t i = 0; i < count; ++i) {
    const int64_t drawn = i + stream.below(n - i);
    chosen.push_back(at(drawn));
    moved[drawn] = at(i);
  }
  return chosen;
}

}  // namespace renorm
