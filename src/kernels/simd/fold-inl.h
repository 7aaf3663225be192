// From sums to coefficients: the per-channel arithmetic between the two passes over the data. Plain loops that the
// compiler vectorises; compiled without contraction, so that the forward and the recomputed mask of the backward
// pass see the same bits.
#if defined(RENORM_KERNELS_SIMD_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_FOLD_INL_H_
#undef RENORM_KERNELS_SIMD_FOLD_INL_H_
#else
#define RENORM_KERNELS_SIMD_FOLD_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "kernels/problem.h"
#include "kernels/simd/internal.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

template <typename P>
HWY_INLINE P Clip(P value, P least, P greatest) {
  value = value < least ? least : value;  // in this order NaN stays NaN
  return value > greatest ? greatest : value;
}

// The coefficients of the output, written once so that both passes round alike.
template <typename P>
struct ScaleShift {
  P scale;
  P shift;
};
template <typename P>
HWY_INLINE ScaleShift<P> CoefficientsOf(P weight, P bias, P r, P d, P std, P low) {
  const P scale = weight * r / std;
  return {scale, (bias + weight * d) - scale * low};
}

// Statistics, r, d and the output's coefficients of channels [first, last) of `group`, from the mean and the sum of
// squared distances of `count` values. mean, m2 and affine start at channel `first`.
template <typename T>
HWY_NOINLINE void FoldForward(const Forward<T>& problem, int64_t group, int64_t first, int64_t last, double count,
                              const double* HWY_RESTRICT mean, const double* HWY_RESTRICT m2,
                              const simd::Affine<Stat<T>>& affine) {
  using P = Stat<T>;
  const int64_t row = group * problem.shape.c + first;
  const P* HWY_RESTRICT weight = problem.weight + first;
  const P* HWY_RESTRICT bias = problem.bias + first;
  const P* HWY_RESTRICT running_mean = problem.running_mean + first;
  const P* HWY_RESTRICT running_std = problem.running_std + first;
  P* HWY_RESTRICT batch_mean = problem.batch_mean + row;
  P* HWY_RESTRICT batch_mean_low = problem.batch_mean_low + row;
  P* HWY_RESTRICT batch_std = problem.batch_std + row;
  P* HWY_RESTRICT r_out = problem.r + row;
  P* HWY_RESTRICT d_out = problem.d + row;
  P* HWY_RESTRICT affine_mean = affine.mean;
  P* HWY_RESTRICT affine_scale = affine.scale;
  P* HWY_RESTRICT affine_shift = affine.shift;
  const double inv_count = 1.0 / count;
  const double eps = problem.eps;
  const P r_most = static_cast<P>(problem.r_max);
  const P r_least = static_cast<P>(1.0 / problem.r_max);
  const P d_most = static_cast<P>(problem.d_max);
  for (int64_t i = 0; i < last - first; ++i) {
    const double m = mean[i];
    const P std = std::sqrt(static_cast<P>(m2[i] * inv_count + eps));
    const P rounded = static_cast<P>(m);
    const P low = static_cast<P>(m - static_cast<double>(rounded));
    const P distance = static_cast<P>(m - static_cast<double>(running_mean[i]));
    const P r = Clip(std / running_std[i], r_least, r_most);
    const P d = Clip(distance / running_std[i], -d_most, d_most);
    const ScaleShift<P> output = CoefficientsOf(weight[i], bias[i], r, d, std, low);
    batch_mean[i] = rounded;
    batch_mean_low[i] = low;
    batch_std[i] = std;
    r_out[i] = r;
    d_out[i] = d;
    affine_mean[i] = rounded;
    affine_scale[i] = output.scale;
    affine_shift[i] = output.shift;
  }
}

// The output's coefficients of channels [first, last) of `group` again, bit for bit as FoldForward made them.
// affine starts at channel `first`.
template <typename T>
HWY_NOINLINE void AffineOf(const Backward<T>& problem, int64_t group, int64_t first, int64_t last,
                           const simd::Affine<Stat<T>>& affine) {
  using P = Stat<T>;
  const int64_t row = group * problem.shape.c + first;
  P* HWY_RESTRICT affine_mean = affine.mean;
  P* HWY_RESTRICT affine_scale = affine.scale;
  P* HWY_RESTRICT affine_shift = affine.shift;
  for (int64_t i = 0; i < last - first; ++i) {
    const ScaleShift<P> output =
        CoefficientsOf(problem.weight[first + i], problem.bias[first + i], problem.r[row + i], problem.d[row + i],
                       problem.batch_std[row + i], problem.batch_mean_low[row + i]);
    affine_mean[i] = problem.batch_mean[row + i];
    affine_scale[i] = output.scale;
    affine_shift[i] = output.shift;
  }
}

// The gradient's coefficients of channels [first, last) of `group` from the sums over its `count` values; sum_dy_x is
// moved from the rounded to the full mean on the way. All arrays start at channel `first`.
template <typename T>
HWY_NOINLINE void FoldBackward(const Backward<T>& problem, int64_t group, int64_t first, int64_t last, double count,
                               const double* HWY_RESTRICT sum_dy, double* HWY_RESTRICT sum_dy_x,
                               const simd::Gradient<Stat<T>>& gradient) {
  using P = Stat<T>;
  const int64_t row = group * problem.shape.c + first;
  P* HWY_RESTRICT outer_scale = gradient.scale;
  P* HWY_RESTRICT slope = gradient.slope;
  P* HWY_RESTRICT shift = gradient.shift;
  // Frozen statistics have no part in the gradient.
  const double share = problem.frozen ? 0.0 : 1.0 / count;
  for (int64_t i = 0; i < last - first; ++i) {
    const double low = static_cast<double>(problem.batch_mean_low[row + i]);
    const double inv_std = 1.0 / static_cast<double>(problem.batch_std[row + i]);
    const double scale =
        static_cast<double>(problem.weight[first + i]) * static_cast<double>(problem.r[row + i]) * inv_std;
    const double about_mean = sum_dy_x[i] - low * sum_dy[i];
    const double tilt = -about_mean * share * inv_std * inv_std;
    sum_dy_x[i] = about_mean;
    outer_scale[i] = static_cast<P>(scale);
    slope[i] = static_cast<P>(tilt);
    shift[i] = static_cast<P>(-sum_dy[i] * share - tilt * low);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_FOLD_INL_H_
