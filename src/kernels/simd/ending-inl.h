// The end of the output: residual and activation, after the affine part. Forward and backward share it, so
// that the mask of the backward is that of the forward to the last bit.
#if defined(RENORM_KERNELS_SIMD_ENDING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_ENDING_INL_H_
#undef RENORM_KERNELS_SIMD_ENDING_INL_H_
#else
#define RENORM_KERNELS_SIMD_ENDING_INL_H_
#endif

#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/problem.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// Fixed when a loop is compiled. With a residual the forward takes its activation at run time, which costs
// nothing beside the reading of the residual; the backward uses kResidual for ReLU only.
enum class Ending { kPlain, kRelu, kResidual };

// Calls run(ending, stream) with both as compile-time constants.
template <class Problem, class Run>
HWY_INLINE void ForEnding(const Problem& problem, bool stream, const Run& run) {
  const auto for_stream = [&](auto ending) {
    stream ? run(ending, std::true_type()) : run(ending, std::false_type());
  };
  if (problem.residual != nullptr) {
    for_stream(std::integral_constant<Ending, Ending::kResidual>());
  } else if (problem.activation == Activation::kRelu) {
    for_stream(std::integral_constant<Ending, Ending::kRelu>());
  } else {
    for_stream(std::integral_constant<Ending, Ending::kPlain>());
  }
}

// The residual from element i on by `load`. Without one it is unused, and the pointer is null or not set.
template <Ending kEnding, typename T, class Load>
HWY_INLINE Vec<Stat<T>> LoadResidual(const T* residual, int64_t i, const Load& load) {
  if constexpr (kEnding == Ending::kResidual) return load(residual + i);
  (void)residual, (void)i, (void)load;
  return hn::Zero(Tag<Stat<T>>());
}

// The smallest output: 0 for ReLU.
template <typename P>
HWY_INLINE Vec<P> FloorOf(Activation activation) {
  return hn::Set(Tag<P>(), activation == Activation::kRelu ? P(0) : -std::numeric_limits<P>::infinity());
}

template <Ending kEnding, typename P>
HWY_INLINE Vec<P> PreActivation(Vec<P> centred, Vec<P> scale, Vec<P> shift, Vec<P> residual) {
  const Vec<P> affine = hn::MulAdd(centred, scale, shift);
  if constexpr (kEnding == Ending::kResidual) return hn::Add(affine, residual);
  (void)residual;
  return affine;
}

// The output. NaN stays NaN.
template <Ending kEnding, typename P>
HWY_INLINE Vec<P> Finish(Vec<P> centred, Vec<P> scale, Vec<P> shift, Vec<P> residual, Vec<P> floor) {
  const Vec<P> v = PreActivation<kEnding, P>(centred, scale, shift, residual);
  if constexpr (kEnding == Ending::kRelu) return Relu<P>(v);
  if constexpr (kEnding == Ending::kResidual) return hn::IfThenElse(hn::Lt(v, floor), floor, v);
  (void)floor;
  return v;
}

// The gradient before the activation: it passes where the output is not clamped.
template <Ending kEnding, typename P>
HWY_INLINE Vec<P> Mask(Vec<P> centred, Vec<P> scale, Vec<P> shift, Vec<P> residual, Vec<P> gradient) {
  if constexpr (kEnding == Ending::kPlain) {
    (void)centred, (void)scale, (void)shift, (void)residual;
    return gradient;
  } else {
    const Vec<P> v = PreActivation<kEnding, P>(centred, scale, shift, residual);
    return hn::IfThenZeroElse(hn::Le(v, hn::Zero(Tag<P>())), gradient);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_ENDING_INL_H_
