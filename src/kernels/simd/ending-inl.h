// The end of the output: residual and activation, after the affine part, and the mask of the activation. A
// recomputed mask is that of the forward to the last bit.
#if defined(RENORM_KERNELS_SIMD_ENDING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_ENDING_INL_H_
#undef RENORM_KERNELS_SIMD_ENDING_INL_H_
#else
#define RENORM_KERNELS_SIMD_ENDING_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/problem.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// Fixed when a loop is compiled. With a residual the forward takes its activation at run time, which costs
// nothing beside the reading of the residual. The backward of kResidual is that of a ReLU with a mask.
enum class Ending { kPlain, kRelu, kResidual };

template <typename T>
HWY_INLINE bool HasResidual(const Forward<T>& problem) {
  return problem.residual != nullptr;
}
template <typename T>
HWY_INLINE bool HasResidual(const Inference<T>& problem) {
  return problem.residual != nullptr;
}
template <typename T>
HWY_INLINE bool HasResidual(const Backward<T>& problem) {
  return problem.mask != nullptr;
}

// Calls run(ending, stream) with both as compile-time constants.
template <class Problem, class Run>
HWY_INLINE void ForEnding(const Problem& problem, bool stream, const Run& run) {
  const auto for_stream = [&](auto ending) {
    stream ? run(ending, std::true_type()) : run(ending, std::false_type());
  };
  if (HasResidual(problem)) {
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

// The output, and where the gradient stops. kResidual alone sets the latter.
template <typename P>
struct Output {
  Vec<P> value;
  hn::Mask<Tag<P>> stopped;
};

// NaN stays NaN.
template <Ending kEnding, typename P>
HWY_INLINE Output<P> Finish(Vec<P> centred, Vec<P> scale, Vec<P> shift, Vec<P> residual, Vec<P> floor) {
  const Vec<P> affine = hn::MulAdd(centred, scale, shift);
  (void)residual, (void)floor;
  if constexpr (kEnding == Ending::kResidual) {
    const Vec<P> v = hn::Add(affine, residual);
    const hn::Mask<Tag<P>> stopped = hn::Le(v, floor);
    return {hn::IfThenElse(stopped, floor, v), stopped};
  } else {
    return {kEnding == Ending::kRelu ? Relu<P>(affine) : affine, hn::FirstN(Tag<P>(), 0)};
  }
}

// The gradient before the activation: it passes where the output is not clamped. `bits` is the mask of these
// values, used by kResidual; kRelu recomputes it.
template <Ending kEnding, typename P>
HWY_INLINE Vec<P> Mask(Vec<P> centred, Vec<P> scale, Vec<P> shift, uint64_t bits, Vec<P> gradient) {
  const Tag<P> d;
  (void)centred, (void)scale, (void)shift, (void)bits, (void)d;
  if constexpr (kEnding == Ending::kPlain) {
    return gradient;
  } else if constexpr (kEnding == Ending::kRelu) {
    const Vec<P> v = hn::MulAdd(centred, scale, shift);
    return hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), gradient);
  } else {
    return hn::IfThenZeroElse(hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&bits)), gradient);
  }
}

// The bits of a vector and up to 7 others fit into 64.
static_assert(hn::MaxLanes(Tag<float>()) <= 56);

// The mask as the backward reads it, from value `first` on.
struct MaskBits {
  const uint8_t* HWY_RESTRICT bytes;
  int64_t first;

  HWY_INLINE MaskBits At(int64_t offset) const { return {bytes, first + offset}; }
  // Bits of a vector of values from value i on. Those behind its last lane are of other values.
  HWY_INLINE uint64_t Of(int64_t i) const {
    const uint64_t value = static_cast<uint64_t>(first + i);
    uint64_t bits = 0;
    std::memcpy(&bits, bytes + value / 8, sizeof(bits));
    return bits >> (value % 8);
  }
};

template <typename T>
HWY_INLINE MaskBits MaskOf(const Backward<T>& problem) {
  return {problem.mask, 0};
}
// The mask of a vector where the ending has one.
template <Ending kEnding>
HWY_INLINE uint64_t LoadMask(const MaskBits& mask, int64_t i) {
  if constexpr (kEnding == Ending::kResidual) return mask.Of(i);
  (void)mask, (void)i;
  return 0;
}

// The mask as the forward writes it, from value `first` on. All bits are zero before.
struct MaskOutput {
  uint8_t* HWY_RESTRICT bytes;
  int64_t first;

  // The first n bits of `stopped`, from value i on. Units may share a byte.
  template <typename P>
  HWY_INLINE void Put(hn::Mask<Tag<P>> stopped, int64_t i, int64_t n) const {
    const Tag<P> d;
    const uint64_t value = static_cast<uint64_t>(first + i);
    uint8_t buffer[8] = {};  // Highway requires 8 bytes
    hn::StoreMaskBits(d, stopped, buffer);
    if (HWY_LIKELY(value % 8 == 0 && n == Lanes<P>() && n % 8 == 0)) {
      std::memcpy(bytes + value / 8, buffer, hn::MaxLanes(d) / 8);
    } else {
      uint64_t bits = 0;
      std::memcpy(&bits, buffer, sizeof(bits));
      Merge(bits & ~(~uint64_t{0} << n), value);
    }
  }

 private:
  HWY_NOINLINE void Merge(uint64_t bits, uint64_t value) const {
    uint8_t* to = bytes + value / 8;
    for (bits <<= value % 8; bits != 0; bits >>= 8, ++to) {
      __atomic_fetch_or(to, static_cast<uint8_t>(bits), __ATOMIC_RELAXED);
    }
  }
};

template <Ending kEnding>
HWY_INLINE bool HasMask(const MaskOutput& mask) {
  return kEnding == Ending::kResidual && mask.bytes != nullptr;
}

// Writes the mask of n values of output from value i on, if there is one.
template <Ending kEnding, typename P>
HWY_INLINE void StoreMask(const MaskOutput& mask, const Output<P>& output, int64_t i, int64_t n) {
  if constexpr (kEnding == Ending::kResidual) {
    if (HasMask<kEnding>(mask)) mask.Put<P>(output.stopped, i, n);
  }
  (void)mask, (void)output, (void)i, (void)n;
}

template <typename T>
HWY_INLINE MaskOutput MaskOf(const Forward<T>& problem, int64_t first) {
  return {problem.mask, first};
}
template <typename T>
HWY_INLINE MaskOutput MaskOf(const Inference<T>&, int64_t first) {
  return {nullptr, first};
}

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_ENDING_INL_H_
