// Ways to run a kernel's work: all of them must give the same result.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/problem.h"

namespace renorm::test {

enum class Order { kForward, kReversed };

inline kernels::ParallelFor serial() {
  return [](int64_t count, const kernels::Body& body) {
    if (count > 0) body(0, count);
  };
}

// At most `pieces` pieces of nearly equal size, one after the other.
inline kernels::ParallelFor in_pieces(int64_t pieces, Order order = Order::kForward) {
  return [pieces, order](int64_t count, const kernels::Body& body) {
    for (int64_t k = 0; k < pieces; ++k) {
      const int64_t piece = order == Order::kForward ? k : pieces - 1 - k;
      const int64_t first = count * piece / pieces;
      const int64_t last = count * (piece + 1) / pieces;
      if (first < last) body(first, last);
    }
  };
}

// Each thread takes the next of several small pieces, so that the assignment of pieces to threads is random.
inline kernels::ParallelFor on_threads(int64_t threads) {
  return [threads](int64_t count, const kernels::Body& body) {
    const int64_t pieces = std::min(count, 4 * threads);
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t piece = next++; piece < pieces; piece = next++) {
        body(count * piece / pieces, count * (piece + 1) / pieces);
      }
    };
    std::vector<std::thread> pool;
    pool.reserve(static_cast<size_t>(threads));
    for (int64_t i = 0; i < threads; ++i) pool.emplace_back(work);
    for (std::thread& thread : pool) thread.join();
  };
}

}  // namespace renorm::test
