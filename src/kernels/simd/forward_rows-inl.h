// Operations of the forward on the rows of along-inl.h.
#if defined(RENORM_KERNELS_SIMD_FORWARD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_FORWARD_ROWS_INL_H_
#undef RENORM_KERNELS_SIMD_FORWARD_ROWS_INL_H_
#else
#define RENORM_KERNELS_SIMD_FORWARD_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/along-inl.h"
#include "kernels/simd/ending-inl.h"
#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// sum += x - shift and squares += (x - shift)^2 over kRows rows; kFirst: sums start here. The first
// `head` values are taken apart, so that the rest is aligned. What is `ahead` elements beyond is fetched, if
// this is not 0.
template <typename T, int kRows, bool kFirst>
HWY_INLINE void AddRows(const T* HWY_RESTRICT x, int64_t stride, int64_t c, const Stat<T>* HWY_RESTRICT shift,
                        Stat<T>* HWY_RESTRICT sum, Stat<T>* HWY_RESTRICT squares, int64_t head = 0,
                        int64_t ahead = 0) {
  using P = Stat<T>;
  const int64_t lanes = Lanes<P>();
  const auto step = [&](int64_t i, auto&& centred) HWY_ATTR {
    const Vec<P> centre = Load(shift + i);
    Vec<P> a = kFirst ? hn::Zero(Tag<P>()) : Load(sum + i);
    Vec<P> b = kFirst ? hn::Zero(Tag<P>()) : Load(squares + i);
    if (ahead != 0 && i % kValuesPerLine<T> == 0) {
      for (int k = 0; k < kRows; ++k) PrefetchAt(x + k * stride + i, ahead);
    }
    for (int k = 0; k < kRows; ++k) {
      const Vec<P> v = centred(x + k * stride + i, centre);
      a = hn::Add(a, v);
      b = hn::MulAdd(v, v, b);
    }
    Store(a, sum + i);
    Store(b, squares + i);
  };
  int64_t i = 0;
  for (; i < head; i += lanes) {
    const int64_t n = std::min(lanes, head - i);
    step(i, [n](const T* p, Vec<P> centre) HWY_ATTR { return KeepN<P>(hn::Sub(LoadN(p, n), centre), n); });
  }
  i = head;
  for (; i + lanes <= c; i += lanes) {
    step(i, [](const T* p, Vec<P> centre) HWY_ATTR { return hn::Sub(LoadData(p), centre); });
  }
  // Lanes beyond the last channel hold values that are never read.
  if (i < c) {
    step(i, [c, i](const T* p, Vec<P> centre) HWY_ATTR { return hn::Sub(LoadN(p, c - i), centre); });
  }
}

template <typename T, Ending kEnding, bool kStream>
struct RowOutput {
  using P = Stat<T>;
  static constexpr bool kStreams = kStream;
  static constexpr int64_t kLine = kValuesPerLine<T>;
  const T* HWY_RESTRICT x;
  const T* HWY_RESTRICT residual;
  T* HWY_RESTRICT y;
  const P* HWY_RESTRICT mean;
  const P* HWY_RESTRICT scale;
  const P* HWY_RESTRICT shift;
  Vec<P> floor;
  MaskOutput mask;
  // In elements from this row to the one written next. Not 0: whole vectors of y are aligned, and the lines
  // of the next row are prefetched, because runs are too short for the CPU to do it.
  int64_t next = 0;
  // In elements from x to data that is read later and fetched now, if outputs are streamed. 0: none. Without
  // `next` the residual is fetched at this distance too.
  int64_t ahead = 0;

  template <class Load, class LoadParameter>
  HWY_INLINE Output<P> At(int64_t i, const Load& load, const LoadParameter& parameter) const {
    const Vec<P> centred = hn::Sub(load(x + i), parameter(mean + i));
    return Finish<kEnding, P>(centred, parameter(scale + i), parameter(shift + i),
                              LoadResidual<kEnding>(residual, i, load), floor);
  }
  HWY_INLINE Output<P> At(int64_t i) const {
    return At(
        i, [](const T* p) HWY_ATTR { return LoadData(p); }, [](const P* p) HWY_ATTR { return Load(p); });
  }
  // With a mask a row starts at a cache line, so that vectors fill whole bytes.
  HWY_INLINE int64_t Head(int64_t c) const {
    return kStream || next != 0 || HasMask<kEnding>(mask) ? ElementsToLine(y, c) : 0;
  }
  HWY_INLINE void Step(int64_t i) {
    const Output<P> output = At(i);
    Store(output.value, y + i);
    StoreMask<kEnding, P>(mask, output, i, Lanes<P>());
  }
  HWY_INLINE void StreamStep(int64_t i) {
    if constexpr (kStream) {
      const Output<P> output = At(i);
      Stream(output.value, y + i);
      StoreMask<kEnding, P>(mask, output, i, Lanes<P>());
    } else {
      Step(i);
    }
  }
  HWY_INLINE void StepN(int64_t i, int64_t n) {
    const Output<P> output = At(
        i, [n](const T* p) HWY_ATTR { return LoadN(p, n); },
        [n](const P* p) HWY_ATTR { return LoadN(p, n); });
    StoreN(output.value, y + i, n);
    StoreMask<kEnding, P>(mask, output, i, n);
  }
  HWY_INLINE void Prefetch(int64_t i) const {
    if (!kStream && next != 0) PrefetchAt(y + i, next);
    if (kStream && ahead != 0) PrefetchAt(x + i, ahead);
    if constexpr (kEnding == Ending::kResidual) PrefetchAt(residual + i, next != 0 ? next : ahead);
  }
  // This row and the next ones, kRows in all and `stride` elements from one to the next, not streamed.
  // Coefficients are loaded once for all of them.
  template <int kRows>
  HWY_INLINE void Rows(int64_t stride, int64_t c) const {
    const int64_t lanes = Lanes<P>();
    const auto step = [&](int64_t i, int64_t n, auto&& load, auto&& load_parameter, auto&& put) HWY_ATTR {
      const Vec<P> centre = load_parameter(mean + i);
      const Vec<P> slope = load_parameter(scale + i);
      const Vec<P> offset = load_parameter(shift + i);
      // Loads before stores, as in the backward.
      Vec<P> centred[kRows];
      Vec<P> added[kRows];
      for (int k = 0; k < kRows; ++k) {
        const int64_t at = k * stride + i;
        centred[k] = hn::Sub(load(x + at), centre);
        added[k] = LoadResidual<kEnding>(residual, at, load);
      }
      for (int k = 0; k < kRows; ++k) {
        const int64_t at = k * stride + i;
        const Output<P> output = Finish<kEnding, P>(centred[k], slope, offset, added[k], floor);
        put(output.value, y + at);
        StoreMask<kEnding, P>(mask, output, at, n);
      }
    };
    int64_t i = 0;
    for (; i + lanes <= c; i += lanes) {
      step(
          i, lanes, [](const T* p) HWY_ATTR { return LoadData(p); },
          [](const P* p) HWY_ATTR { return Load(p); }, [](Vec<P> v, T* p) HWY_ATTR { Store(v, p); });
    }
    if (i < c) {
      const int64_t n = c - i;
      step(
          i, n, [n](const T* p) HWY_ATTR { return LoadN(p, n); },
          [n](const P* p) HWY_ATTR { return LoadN(p, n); },
          [n](Vec<P> v, T* p) HWY_ATTR { StoreN(v, p, n); });
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_FORWARD_ROWS_INL_H_
