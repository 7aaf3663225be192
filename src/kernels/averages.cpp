#include "kernels/averages.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace renorm::kernels {
namespace {

// Channels are processed in blocks, and each slot of a block has its own sums and extremes: the compiler may
// not reorder one floating-point sum, but it can vectorize these loops. Counts are double for the same
// reason. Slots are merged in order, so a result depends on the input alone.
constexpr int64_t kBlock = 32;

struct Slots {
  double sum[kBlock] = {};
  double m2[kBlock] = {};
  double min[kBlock];
  double max[kBlock];
  double above[kBlock] = {};
  double below[kBlock] = {};

  Slots() {
    std::fill_n(min, kBlock, std::numeric_limits<double>::infinity());
    std::fill_n(max, kBlock, -std::numeric_limits<double>::infinity());
  }
};

// Adds values[i] to slot i and counts it if it is outside [low, high].
void add_block(const double* __restrict values, int64_t count, double low, double high,
               Slots* __restrict slots) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    slots->sum[i] += value;
    slots->min[i] = value < slots->min[i] ? value : slots->min[i];
    slots->max[i] = value > slots->max[i] ? value : slots->max[i];
    slots->above[i] += value > high ? 1.0 : 0.0;
    slots->below[i] += value < low ? 1.0 : 0.0;
  }
}

void add_squared_distances(const double* __restrict values, int64_t count, double mean,
                           Slots* __restrict slots) {
  for (int64_t i = 0; i < count; ++i) {
    const double centred = values[i] - mean;
    slots->m2[i] += centred * centred;
  }
}

double total(const double* slots) {
  double sum = 0.0;
  for (int64_t i = 0; i < kBlock; ++i) sum += slots[i];
  return sum;
}

// Statistics of one forward.
template <typename P>
struct Statistics {
  const P* batch_mean;
  const P* batch_std;
  const P* running_mean;
  const P* running_std;
  int64_t groups;
  int64_t channels;
};

// r[i] = batch_std / running_std, d[i] = (batch_mean - running_mean) / running_std, in the statistics' own
// precision: as in the forward, and twice as fast as in double.
template <typename P>
void raw_r_and_d(const P* __restrict batch_mean, const P* __restrict batch_std,
                 const P* __restrict running_mean, const P* __restrict running_std, int64_t count,
                 double* __restrict r, double* __restrict d) {
  for (int64_t i = 0; i < count; ++i) {
    r[i] = static_cast<double>(batch_std[i] / running_std[i]);
    d[i] = static_cast<double>((batch_mean[i] - running_mean[i]) / running_std[i]);
  }
}

// Calls body(r, d, count) for each block.
template <typename P, typename Body>
void for_each_block(const Statistics<P>& s, const Body& body) {
  double r[kBlock];
  double d[kBlock];
  for (int64_t g = 0; g < s.groups; ++g) {
    for (int64_t c = 0; c < s.channels; c += kBlock) {
      const int64_t count = std::min(kBlock, s.channels - c);
      const int64_t at = g * s.channels + c;
      raw_r_and_d(s.batch_mean + at, s.batch_std + at, s.running_mean + c, s.running_std + c, count, r, d);
      body(r, d, count);
    }
  }
}

// Merges the `added` values in slots into the moments of `present` earlier values. `mean` is that of the
// added.
void merge(const Slots& slots, double mean, int64_t present, int64_t added, Moments* moments) {
  moments->m2 += total(slots.m2);
  if (present == 0) {
    moments->min = slots.min[0];
    moments->max = slots.max[0];
  } else {
    const auto n = static_cast<double>(present);
    const auto m = static_cast<double>(added);
    const double distance = mean - moments->sum / n;
    moments->m2 += distance * distance * (n * m / (n + m));
  }
  for (int64_t i = 0; i < kBlock; ++i) {
    moments->sum += slots.sum[i];
    moments->min = std::min(moments->min, slots.min[i]);
    moments->max = std::max(moments->max, slots.max[i]);
  }
}

// The first index of a value that is not `good`, or -1. One flag per block keeps branches out of the loop.
// Finite minus itself is 0; anything else gives NaN.
template <typename P, typename Good>
int64_t find_unlike(const P* value, int64_t count, const Good& good) {
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t last = std::min(count, first + kBlock);
    int bad = 0;
    for (int64_t i = first; i < last; ++i) bad |= !good(value[i]);
    if (bad == 0) continue;
    for (int64_t i = first; i < last; ++i) {
      if (!good(value[i])) return i;
    }
  }
  return -1;
}

}  // namespace

template <typename P>
void count_clips(const P* batch_mean, const P* batch_std, const P* running_mean, const P* running_std,
                 int64_t groups, int64_t channels, double r_max, double d_max, ClipCounts* counts) noexcept {
  const int64_t added = groups * channels;
  if (added == 0) return;
  const Statistics<P> statistics{batch_mean, batch_std, running_mean, running_std, groups, channels};
  Slots r_slots;
  Slots d_slots;
  for_each_block(statistics, [&](const double* r, const double* d, int64_t count) {
    add_block(r, count, 1.0 / r_max, r_max, &r_slots);
    add_block(d, count, -d_max, d_max, &d_slots);
  });
  const double r_mean = total(r_slots.sum) / static_cast<double>(added);
  const double d_mean = total(d_slots.sum) / static_cast<double>(added);
  for_each_block(statistics, [&](const double* r, const double* d, int64_t count) {
    add_squared_distances(r, count, r_mean, &r_slots);
    add_squared_distances(d, count, d_mean, &d_slots);
  });
  counts->r_above += static_cast<int64_t>(total(r_slots.above));
  counts->r_below += static_cast<int64_t>(total(r_slots.below));
  counts->d_outside += static_cast<int64_t>(total(d_slots.above) + total(d_slots.below));
  merge(r_slots, r_mean, counts->values, added, &counts->r);
  merge(d_slots, d_mean, counts->values, added, &counts->d);
  counts->values += added;
}

template <typename P>
void add_groups(const P* value, int64_t groups, int64_t channels, double* sum) noexcept {
  double* __restrict total = sum;
  for (int64_t g = 0; g < groups; ++g) {
    const P* __restrict row = value + g * channels;
    for (int64_t c = 0; c < channels; ++c) total[c] += static_cast<double>(row[c]);
  }
}

template <typename P>
void move_average(const double* sum, double count, int64_t channels, double momentum, P* running) noexcept {
  const double* __restrict total = sum;
  P* __restrict average = running;
  for (int64_t c = 0; c < channels; ++c) {
    const double old = static_cast<double>(average[c]);
    average[c] = static_cast<P>(old + momentum * (total[c] / count - old));
  }
}

template <typename P>
int64_t find_non_finite(const P* value, int64_t count) noexcept {
  return find_unlike(value, count, [](P x) { return x - x == P(0); });
}

template <typename P>
int64_t find_not_positive(const P* value, int64_t count) noexcept {
  return find_unlike(value, count, [](P x) { return x - x == P(0) && x > P(0); });
}

template void count_clips(const float*, const float*, const float*, const float*, int64_t, int64_t, double,
                          double, ClipCounts*) noexcept;
template void count_clips(const double*, const double*, const double*, const double*, int64_t, int64_t,
                          double, double, ClipCounts*) noexcept;
template void add_groups(const float*, int64_t, int64_t, double*) noexcept;
template void add_groups(const double*, int64_t, int64_t, double*) noexcept;
template void move_average(const double*, double, int64_t, double, float*) noexcept;
template void move_average(const double*, double, int64_t, double, double*) noexcept;
template int64_t find_non_finite(const float*, int64_t) noexcept;
template int64_t find_non_finite(const double*, int64_t) noexcept;
template int64_t find_not_positive(const float*, int64_t) noexcept;
template int64_t find_not_positive(const double*, int64_t) noexcept;

}  // namespace renorm::kernels
