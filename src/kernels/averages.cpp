#include "kernels/averages.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace renorm::kernels {
namespace {

// Channels are taken in blocks, and every place of a block keeps its own sums and extremes: a compiler may
// not reorder one floating-point sum, but these loops it can vectorise. Counts are double for the same
// reason. Places are merged in order, so a result depends on the input alone.
constexpr int64_t kBlock = 32;

struct Places {
  double sum[kBlock] = {};
  double sum_of_squares[kBlock] = {};
  double least[kBlock];
  double greatest[kBlock];
  double above[kBlock] = {};
  double below[kBlock] = {};

  Places() {
    std::fill_n(least, kBlock, std::numeric_limits<double>::infinity());
    std::fill_n(greatest, kBlock, -std::numeric_limits<double>::infinity());
  }
};

// Adds values[i] to place i and counts it if it is outside [low, high].
void add_block(const double* __restrict values, int64_t count, double low, double high,
               Places* __restrict places) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    places->sum[i] += value;
    places->sum_of_squares[i] += value * value;
    places->least[i] = value < places->least[i] ? value : places->least[i];
    places->greatest[i] = value > places->greatest[i] ? value : places->greatest[i];
    places->above[i] += value > high ? 1.0 : 0.0;
    places->below[i] += value < low ? 1.0 : 0.0;
  }
}

// r[i] = batch_std / running_std, d[i] = (batch_mean - running_mean) / running_std, in the statistics' own
// precision, which is that of the forward's r and d and twice as fast.
template <typename P>
void raw_r_and_d(const P* __restrict batch_mean, const P* __restrict batch_std,
                 const P* __restrict running_mean, const P* __restrict running_std, int64_t count,
                 double* __restrict r, double* __restrict d) {
  for (int64_t i = 0; i < count; ++i) {
    r[i] = static_cast<double>(batch_std[i] / running_std[i]);
    d[i] = static_cast<double>((batch_mean[i] - running_mean[i]) / running_std[i]);
  }
}

void merge(const Places& places, bool first, double* sum, double* sum_of_squares, double* least,
           double* greatest) {
  if (first) {
    *least = places.least[0];
    *greatest = places.greatest[0];
  }
  for (int64_t i = 0; i < kBlock; ++i) {
    *sum += places.sum[i];
    *sum_of_squares += places.sum_of_squares[i];
    *least = std::min(*least, places.least[i]);
    *greatest = std::max(*greatest, places.greatest[i]);
  }
}

int64_t total(const double* counts) {
  double sum = 0.0;
  for (int64_t i = 0; i < kBlock; ++i) sum += counts[i];
  return static_cast<int64_t>(sum);
}

}  // namespace

template <typename P>
void count_clips(const P* batch_mean, const P* batch_std, const P* running_mean, const P* running_std,
                 int64_t groups, int64_t channels, double r_max, double d_max, ClipCounts* counts) noexcept {
  if (groups * channels == 0) return;
  Places r_places;
  Places d_places;
  double r[kBlock];
  double d[kBlock];
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t c = 0; c < channels; c += kBlock) {
      const int64_t count = std::min(kBlock, channels - c);
      const int64_t statistic = g * channels + c;
      raw_r_and_d(batch_mean + statistic, batch_std + statistic, running_mean + c, running_std + c, count, r,
                  d);
      add_block(r, count, 1.0 / r_max, r_max, &r_places);
      add_block(d, count, -d_max, d_max, &d_places);
    }
  }
  const bool first = counts->values == 0;
  counts->values += groups * channels;
  counts->r_above += total(r_places.above);
  counts->r_below += total(r_places.below);
  counts->d_outside += total(d_places.above) + total(d_places.below);
  merge(r_places, first, &counts->r_sum, &counts->r_sum_of_squares, &counts->r_least, &counts->r_greatest);
  merge(d_places, first, &counts->d_sum, &counts->d_sum_of_squares, &counts->d_least, &counts->d_greatest);
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
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t last = std::min(count, first + kBlock);
    // Finite minus itself is 0; anything else gives NaN. One flag a block keeps branches out of the loop.
    int bad = 0;
    for (int64_t i = first; i < last; ++i) bad |= !(value[i] - value[i] == P(0));
    if (bad == 0) continue;
    for (int64_t i = first; i < last; ++i) {
      if (!std::isfinite(value[i])) return i;
    }
  }
  return -1;
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

}  // namespace renorm::kernels
