// From sums to coefficients: the per-channel arithmetic between the two passes over the data.
#if defined(RENORM_KERNELS_SIMD_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_FOLD_INL_H_
#undef RENORM_KERNELS_SIMD_FOLD_INL_H_
#else
#define RENORM_KERNELS_SIMD_FOLD_INL_H_
#endif

#include <cstdint>

#include "kernels/problem.h"
#include "kernels/simd/channels-inl.h"
#include "kernels/simd/internal.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// In this order NaN stays NaN.
template <typename P>
HWY_INLINE Vec<P> Clip(Vec<P> value, Vec<P> min, Vec<P> max) {
  value = hn::IfThenElse(hn::Lt(value, min), min, value);
  return hn::IfThenElse(hn::Gt(value, max), max, value);
}

// The coefficients of the output: one function, so that forward and backward round alike.
template <typename P>
struct ScaleShift {
  Vec<P> scale;
  Vec<P> shift;
};
template <typename P>
HWY_INLINE ScaleShift<P> CoefficientsOf(Vec<P> weight, Vec<P> bias, Vec<P> r, Vec<P> d, Vec<P> std,
                                        Vec<P> low) {
  const Vec<P> scale = hn::Div(hn::Mul(weight, r), std);
  return {scale, hn::NegMulAdd(scale, low, hn::MulAdd(weight, d, bias))};
}

// Statistics, r, d and the output's coefficients of channels [first, last) of `group`, from the mean and the
// sum of squared distances of `count` values. mean, m2 and affine start at channel `first`.
template <typename T>
HWY_NOINLINE void FoldForward(const Forward<T>& problem, int64_t group, int64_t first, int64_t last,
                              double count, const double* mean, const double* m2,
                              const simd::Affine<Stat<T>>& affine) {
  using P = Stat<T>;
  const Tag<P> tag;
  const int64_t row = group * problem.shape.c + first;
  const Wide<P> inv_count = SetWide<P>(1.0 / count);
  const Wide<P> eps = SetWide<P>(problem.eps);
  const Vec<P> r_max = hn::Set(tag, static_cast<P>(problem.r_max));
  const Vec<P> r_min = hn::Set(tag, static_cast<P>(1.0 / problem.r_max));
  const Vec<P> d_max = hn::Set(tag, static_cast<P>(problem.d_max));
  const Vec<P> d_min = hn::Neg(d_max);
  ForChannels<P>(last - first, [&](int64_t i, int64_t n) HWY_ATTR {
    const Wide<P> exact = LoadWideUpTo<P>(mean + i, n);
    const Vec<P> std = hn::Sqrt(Narrow(LoadWideUpTo<P>(m2 + i, n) * inv_count + eps));
    const Vec<P> rounded = Narrow(exact);
    const Vec<P> low = Narrow(exact - Widen(rounded));
    const Vec<P> distance = Narrow(exact - Widen(LoadUpTo(problem.running_mean + first + i, n)));
    const Vec<P> running_std = LoadUpTo(problem.running_std + first + i, n);
    const Vec<P> r = Clip<P>(hn::Div(std, running_std), r_min, r_max);
    const Vec<P> d = Clip<P>(hn::Div(distance, running_std), d_min, d_max);
    const ScaleShift<P> output = CoefficientsOf<P>(LoadUpTo(problem.weight + first + i, n),
                                                   LoadUpTo(problem.bias + first + i, n), r, d, std, low);
    StoreUpTo<P>(rounded, problem.batch_mean + row + i, n);
    StoreUpTo<P>(low, problem.batch_mean_low + row + i, n);
    StoreUpTo<P>(std, problem.batch_std + row + i, n);
    StoreUpTo<P>(r, problem.r + row + i, n);
    StoreUpTo<P>(d, problem.d + row + i, n);
    StoreUpTo<P>(rounded, affine.mean + i, n);
    StoreUpTo<P>(output.scale, affine.scale + i, n);
    StoreUpTo<P>(output.shift, affine.shift + i, n);
  });
}

// Recomputes the output's coefficients of channels [first, last) of `group`, bit-identical to FoldForward.
// affine starts at channel `first`.
template <typename T>
HWY_NOINLINE void AffineOf(const Backward<T>& problem, int64_t group, int64_t first, int64_t last,
                           const simd::Affine<Stat<T>>& affine) {
  using P = Stat<T>;
  const int64_t row = group * problem.shape.c + first;
  ForChannels<P>(last - first, [&](int64_t i, int64_t n) HWY_ATTR {
    const ScaleShift<P> output = CoefficientsOf<P>(
        LoadUpTo(problem.weight + first + i, n), LoadUpTo(problem.bias + first + i, n),
        LoadUpTo(problem.r + row + i, n), LoadUpTo(problem.d + row + i, n),
        LoadUpTo(problem.batch_std + row + i, n), LoadUpTo(problem.batch_mean_low + row + i, n));
    StoreUpTo<P>(LoadUpTo(problem.batch_mean + row + i, n), affine.mean + i, n);
    StoreUpTo<P>(output.scale, affine.scale + i, n);
    StoreUpTo<P>(output.shift, affine.shift + i, n);
  });
}

// The gradient's coefficients of channels [first, last) of `group` from the sums over its `count` values.
// Also corrects sum_dy_x from the rounded to the full mean. All arrays start at channel `first`.
template <typename T>
HWY_NOINLINE void FoldBackward(const Backward<T>& problem, int64_t group, int64_t first, int64_t last,
                               double count, const double* sum_dy, double* sum_dy_x,
                               const simd::Gradient<Stat<T>>& gradient) {
  using P = Stat<T>;
  const int64_t row = group * problem.shape.c + first;
  // Frozen statistics contribute nothing to the gradient.
  const Wide<P> share = SetWide<P>(problem.frozen ? 0.0 : -1.0 / count);
  const Wide<P> one = SetWide<P>(1.0);
  ForChannels<P>(last - first, [&](int64_t i, int64_t n) HWY_ATTR {
    const Wide<P> low = Widen(LoadUpTo(problem.batch_mean_low + row + i, n));
    const Wide<P> inv_std = one / Widen(LoadUpTo(problem.batch_std + row + i, n));
    const Wide<P> sum = LoadWideUpTo<P>(sum_dy + i, n);
    const Wide<P> about_mean = LoadWideUpTo<P>(sum_dy_x + i, n) - low * sum;
    const Wide<P> slope = about_mean * share * inv_std * inv_std;
    const Wide<P> scale =
        Widen(LoadUpTo(problem.weight + first + i, n)) * Widen(LoadUpTo(problem.r + row + i, n)) * inv_std;
    StoreWideUpTo<P>(about_mean, sum_dy_x + i, n);
    StoreUpTo<P>(Narrow(scale), gradient.scale + i, n);
    StoreUpTo<P>(Narrow(slope), gradient.slope + i, n);
    StoreUpTo<P>(Narrow(sum * share - slope * low), gradient.shift + i, n);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_FOLD_INL_H_
