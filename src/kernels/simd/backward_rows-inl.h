// Operations of the backward on the rows of along-inl.h.
#if defined(RENORM_KERNELS_SIMD_BACKWARD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_BACKWARD_ROWS_INL_H_
#undef RENORM_KERNELS_SIMD_BACKWARD_ROWS_INL_H_
#else
#define RENORM_KERNELS_SIMD_BACKWARD_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/along-inl.h"
#include "kernels/simd/ending-inl.h"
#include "kernels/simd/internal.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// The data of rows that are read together: the same offsets in each array.
template <typename T>
struct GradientData {
  const T* HWY_RESTRICT x;
  const T* HWY_RESTRICT dy;
  MaskBits mask;

  HWY_INLINE GradientData At(int64_t offset) const { return {x + offset, dy + offset, mask.At(offset)}; }
};

template <typename T>
HWY_INLINE GradientData<T> DataOf(const Backward<T>& problem) {
  return {problem.x, problem.dy, MaskOf(problem)};
}

// sum += dy and products += dy * (x - mean) over kRows rows; kFirst: sums start here. `head` and `ahead`
// as in the forward.
template <typename T, Ending kEnding, int kRows, bool kFirst>
HWY_INLINE void AddRows(const GradientData<T>& data, int64_t stride, int64_t c,
                        const simd::Affine<Stat<T>>& affine, Stat<T>* HWY_RESTRICT sum,
                        Stat<T>* HWY_RESTRICT products, int64_t head = 0, int64_t ahead = 0) {
  using P = Stat<T>;
  constexpr bool kRecomputed = kEnding == Ending::kRelu;
  const int64_t lanes = Lanes<P>();
  const auto step = [&](int64_t i, auto&& load, auto&& load_parameter) HWY_ATTR {
    const Vec<P> mean = load_parameter(affine.mean + i);
    const Vec<P> scale = kRecomputed ? load_parameter(affine.scale + i) : mean;
    const Vec<P> shift = kRecomputed ? load_parameter(affine.shift + i) : mean;
    Vec<P> a = kFirst ? hn::Zero(Tag<P>()) : Load(sum + i);
    Vec<P> b = kFirst ? hn::Zero(Tag<P>()) : Load(products + i);
    if (ahead != 0 && i % kValuesPerLine<T> == 0) {
      for (int k = 0; k < kRows; ++k) {
        PrefetchAt(data.x + k * stride + i, ahead);
        PrefetchAt(data.dy + k * stride + i, ahead);
      }
    }
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = k * stride + i;
      const Vec<P> centred = hn::Sub(load(data.x + at), mean);
      const uint64_t bits = LoadMask<kEnding>(data.mask, at);
      const Vec<P> gradient = Mask<kEnding, P>(centred, scale, shift, bits, load(data.dy + at));
      a = hn::Add(a, gradient);
      b = hn::MulAdd(gradient, centred, b);
    }
    Store(a, sum + i);
    Store(b, products + i);
  };
  int64_t i = 0;
  for (; i < head; i += lanes) {
    const int64_t n = std::min(lanes, head - i);
    step(
        i, [n](const T* p) HWY_ATTR { return LoadN(p, n); },
        [n](const P* p) HWY_ATTR { return LoadN(p, n); });
  }
  i = head;
  for (; i + lanes <= c; i += lanes) {
    step(
        i, [](const T* p) HWY_ATTR { return LoadData(p); }, [](const P* p) HWY_ATTR { return Load(p); });
  }
  if (i < c) {
    const int64_t n = c - i;
    step(
        i, [n](const T* p) HWY_ATTR { return LoadN(p, n); },
        [n](const P* p) HWY_ATTR { return LoadN(p, n); });
  }
}

// Writes dx; with a residual dx and dresidual, either of which may be null.
template <typename T, Ending kEnding, bool kStream>
struct RowGradient {
  using P = Stat<T>;
  static constexpr bool kStreams = kStream;
  static constexpr int64_t kLine = kValuesPerLine<T>;
  GradientData<T> data;
  T* HWY_RESTRICT dx;
  T* HWY_RESTRICT dresidual;
  simd::Affine<P> affine;
  simd::Gradient<P> gradient;
  int64_t next = 0;   // as in the forward
  int64_t ahead = 0;  // as in the forward

  template <class Load, class LoadParameter, class Put>
  HWY_INLINE void At(int64_t i, const Load& load, const LoadParameter& parameter, const Put& put) const {
    constexpr bool kRecomputed = kEnding == Ending::kRelu;
    const Vec<P> mean = parameter(affine.mean + i);
    const Vec<P> centred = hn::Sub(load(data.x + i), mean);
    const Vec<P> scale = kRecomputed ? parameter(affine.scale + i) : mean;
    const Vec<P> shift = kRecomputed ? parameter(affine.shift + i) : mean;
    const uint64_t bits = LoadMask<kEnding>(data.mask, i);
    const Vec<P> masked = Mask<kEnding, P>(centred, scale, shift, bits, load(data.dy + i));
    const Vec<P> pull = hn::MulAdd(centred, parameter(gradient.slope + i), parameter(gradient.shift + i));
    if constexpr (kEnding == Ending::kResidual) {
      if (dresidual != nullptr) put(masked, dresidual + i);
      if (dx == nullptr) return;
    }
    put(hn::Mul(parameter(gradient.scale + i), hn::Add(masked, pull)), dx + i);
  }
  template <class Put>
  HWY_INLINE void At(int64_t i, const Put& put) const {
    At(
        i, [](const T* p) HWY_ATTR { return LoadData(p); }, [](const P* p) HWY_ATTR { return Load(p); }, put);
  }
  HWY_INLINE int64_t Head(int64_t c) const {
    return kStream || next != 0 ? ElementsToLine(dx != nullptr ? dx : dresidual, c) : 0;
  }
  HWY_INLINE void Step(int64_t i) {
    At(i, [](Vec<P> v, T* p) HWY_ATTR { Store(v, p); });
  }
  HWY_INLINE void StreamStep(int64_t i) {
    At(i, [](Vec<P> v, T* p) HWY_ATTR { kStream ? Stream(v, p) : Store(v, p); });
  }
  HWY_INLINE void StepN(int64_t i, int64_t n) {
    At(
        i, [n](const T* p) HWY_ATTR { return LoadN(p, n); }, [n](const P* p) HWY_ATTR { return LoadN(p, n); },
        [n](Vec<P> v, T* p) HWY_ATTR { StoreN(v, p, n); });
  }
  HWY_INLINE void Prefetch(int64_t i) const {
    if (!kStream && next != 0) PrefetchAt((dx != nullptr ? dx : dresidual) + i, next);
    if (!kStream || ahead == 0) return;
    PrefetchAt(data.x + i, ahead);
    PrefetchAt(data.dy + i, ahead);
  }
  // This row and the next ones, as in the forward.
  template <int kRows>
  HWY_INLINE void Rows(int64_t stride, int64_t c) const {
    const int64_t lanes = Lanes<P>();
    const auto step = [&](int64_t i, auto&& load, auto&& load_parameter, auto&& put) HWY_ATTR {
      constexpr bool kRecomputed = kEnding == Ending::kRelu;
      const Vec<P> mean = load_parameter(affine.mean + i);
      const Vec<P> scale = kRecomputed ? load_parameter(affine.scale + i) : mean;
      const Vec<P> shift = kRecomputed ? load_parameter(affine.shift + i) : mean;
      const Vec<P> outer = load_parameter(gradient.scale + i);
      const Vec<P> slope = load_parameter(gradient.slope + i);
      const Vec<P> offset = load_parameter(gradient.shift + i);
      // All loads come before the stores: rows of whole pages share their low address bits, and a load after
      // a store with the same ones waits for it.
      Vec<P> masked[kRows];
      Vec<P> gradients[kRows];
      for (int k = 0; k < kRows; ++k) {
        const int64_t at = k * stride + i;
        const Vec<P> centred = hn::Sub(load(data.x + at), mean);
        const uint64_t bits = LoadMask<kEnding>(data.mask, at);
        masked[k] = Mask<kEnding, P>(centred, scale, shift, bits, load(data.dy + at));
        gradients[k] = hn::Mul(outer, hn::Add(masked[k], hn::MulAdd(centred, slope, offset)));
      }
      if (kEnding == Ending::kResidual && dresidual != nullptr) {
        for (int k = 0; k < kRows; ++k) put(masked[k], dresidual + k * stride + i);
      }
      if (dx == nullptr) return;
      for (int k = 0; k < kRows; ++k) put(gradients[k], dx + k * stride + i);
    };
    int64_t i = 0;
    for (; i + lanes <= c; i += lanes) {
      step(
          i, [](const T* p) HWY_ATTR { return LoadData(p); }, [](const P* p) HWY_ATTR { return Load(p); },
          [](Vec<P> v, T* p) HWY_ATTR { Store(v, p); });
    }
    if (i < c) {
      const int64_t n = c - i;
      step(
          i, [n](const T* p) HWY_ATTR { return LoadN(p, n); },
          [n](const P* p) HWY_ATTR { return LoadN(p, n); },
          [n](Vec<P> v, T* p) HWY_ATTR { StoreN(v, p, n); });
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_BACKWARD_ROWS_INL_H_
