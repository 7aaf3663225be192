// Moving averages and clip telemetry: the per-channel arithmetic that follows a training forward.
#pragma once

#include <cstdint>

namespace renorm::kernels {

struct Moments {
  double sum = 0.0;
  double m2 = 0.0;  // sum of squared distances from the mean
  double min = 0.0;
  double max = 0.0;
};

// Accumulated r and d before clipping, and how many of them were clipped. Every (group, channel) pair of
// every forward counts once.
struct ClipCounts {
  int64_t values = 0;
  int64_t r_above = 0;    // batch_std / running_std > r_max
  int64_t r_below = 0;    // batch_std / running_std < 1 / r_max
  int64_t d_outside = 0;  // |batch_mean - running_mean| / running_std > d_max
  Moments r;
  Moments d;
};

// Adds the unclipped r and d of [groups][channels] statistics to counts. Values are computed in P, sums in
// double.
template <typename P>
void count_clips(const P* batch_mean, const P* batch_std, const P* running_mean, const P* running_std,
                 int64_t groups, int64_t channels, double r_max, double d_max, ClipCounts* counts) noexcept;

// sum[c] += sum over groups of value[g][c].
template <typename P>
void add_groups(const P* value, int64_t groups, int64_t channels, double* sum) noexcept;

// running[c] += momentum * (sum[c] / count - running[c]).
template <typename P>
void move_average(const double* sum, double count, int64_t channels, double momentum, P* running) noexcept;

// The first index of a value that is not finite, or -1.
template <typename P>
int64_t find_non_finite(const P* value, int64_t count) noexcept;

// The first index of a value that is not a finite number above 0, or -1.
template <typename P>
int64_t find_not_positive(const P* value, int64_t count) noexcept;

}  // namespace renorm::kernels
