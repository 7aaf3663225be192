// Loads, stores and the row loop that the SIMD kernels share. Compiled once per instruction set: everything
// stays inside Highway's target namespace.
#if defined(RENORM_KERNELS_SIMD_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_VECTOR_INL_H_
#undef RENORM_KERNELS_SIMD_VECTOR_INL_H_
#else
#define RENORM_KERNELS_SIMD_VECTOR_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/problem.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLineBytes = 64;
template <typename T>
constexpr int64_t kValuesPerLine = kLineBytes / static_cast<int64_t>(sizeof(T));
// How many values ahead of the loads data is fetched that is read as it lies in memory.
template <typename T>
constexpr int64_t kAhead = 4096 / static_cast<int64_t>(sizeof(T));
// Places in the data of a channel that determine the first shift of its statistics.
constexpr int64_t kPlaces = 5;

template <typename P>
using Tag = hn::ScalableTag<P>;
template <typename P>
using Vec = hn::Vec<Tag<P>>;

template <typename P>
HWY_INLINE int64_t Lanes() {
  return static_cast<int64_t>(hn::Lanes(Tag<P>()));
}

// BFloat16 is loaded as 16-bit integers: Highway's own conversion truncates in some releases.
using TagBits16 = hn::Rebind<uint16_t, Tag<float>>;
using TagBits32 = hn::Rebind<uint32_t, Tag<float>>;
using TagInt32 = hn::Rebind<int32_t, Tag<float>>;

HWY_INLINE Vec<float> WidenBits(hn::Vec<TagBits16> bits) {
  return hn::BitCast(Tag<float>(), hn::ShiftLeft<16>(hn::PromoteTo(TagBits32(), bits)));
}

// Rounds to nearest even; NaN stays NaN.
HWY_INLINE hn::Vec<TagBits16> NarrowBits(Vec<float> v) {
  const TagBits32 d32;
  const auto bits = hn::BitCast(d32, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFFu)));
  const auto quiet = hn::Or(bits, hn::Set(d32, 0x00400000u));
  const auto is_nan = hn::RebindMask(d32, hn::Ne(v, v));
  const auto kept = hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded));
  return hn::DemoteTo(TagBits16(), hn::BitCast(TagInt32(), kept));
}

// Overloads, not templates: newer Highway rejects a tag of BFloat16 even where overload resolution discards
// it.
HWY_INLINE Vec<float> Load(const float* p) { return hn::LoadU(Tag<float>(), p); }
HWY_INLINE Vec<double> Load(const double* p) { return hn::LoadU(Tag<double>(), p); }
HWY_INLINE Vec<float> Load(const BFloat16* p) {
  return WidenBits(hn::LoadU(TagBits16(), reinterpret_cast<const uint16_t*>(p)));
}

// Loads and streams a vector of the values of a tensor, which lie in outer caches or in memory. One that
// fills a cache line goes in halves, because whole ones are slow on an AMD Zen 5 (docs/decisions/0046).
#if HWY_MAX_BYTES == 64
template <typename P>
HWY_INLINE Vec<P> LoadFar(const P* p) {
  const hn::Half<Tag<P>> half;
  return hn::Combine(Tag<P>(), hn::LoadU(half, p + hn::Lanes(half)), hn::LoadU(half, p));
}
template <typename P>
HWY_INLINE void StreamFar(Vec<P> v, P* p) {
  const hn::Half<Tag<P>> half;
  hn::Stream(hn::LowerHalf(half, v), half, p);
  hn::Stream(hn::UpperHalf(half, v), half, p + hn::Lanes(half));
}
#else
template <typename P>
HWY_INLINE Vec<P> LoadFar(const P* p) {
  return Load(p);
}
template <typename P>
HWY_INLINE void StreamFar(Vec<P> v, P* p) {
  hn::Stream(v, Tag<P>(), p);
}
#endif

// Overloads, as of Load().
HWY_INLINE Vec<float> LoadData(const float* p) { return LoadFar(p); }
HWY_INLINE Vec<double> LoadData(const double* p) { return LoadFar(p); }
HWY_INLINE Vec<float> LoadData(const BFloat16* p) { return Load(p); }

// A vector of the single value at p.
template <typename P>
using One = hn::Vec<hn::CappedTag<P, 1>>;
HWY_INLINE One<float> LoadOne(const float* p) { return hn::LoadU(hn::CappedTag<float, 1>(), p); }
HWY_INLINE One<double> LoadOne(const double* p) { return hn::LoadU(hn::CappedTag<double, 1>(), p); }
HWY_INLINE One<float> LoadOne(const BFloat16* p) {
  const auto bits = hn::Set(hn::CappedTag<uint32_t, 1>(), static_cast<uint32_t>(p->bits) << 16);
  return hn::BitCast(hn::CappedTag<float, 1>(), bits);
}

HWY_INLINE void Store(Vec<float> v, float* p) { hn::StoreU(v, Tag<float>(), p); }
HWY_INLINE void Store(Vec<double> v, double* p) { hn::StoreU(v, Tag<double>(), p); }
HWY_INLINE void Store(Vec<float> v, BFloat16* p) {
  hn::StoreU(NarrowBits(v), TagBits16(), reinterpret_cast<uint16_t*>(p));
}

// p is a multiple of the vector's size.
HWY_INLINE void Stream(Vec<float> v, float* p) { StreamFar(v, p); }
HWY_INLINE void Stream(Vec<double> v, double* p) { StreamFar(v, p); }
// Highway streams 16 bytes at least, which is more than the narrow half of a vector of 128 bits.
HWY_INLINE void Stream(Vec<float> v, BFloat16* p) {
  const TagBits16 d;
  if constexpr (hn::MaxLanes(TagBits16()) * sizeof(uint16_t) >= 16) {
    hn::Stream(NarrowBits(v), d, reinterpret_cast<uint16_t*>(p));
  } else {
    hn::Store(NarrowBits(v), d, reinterpret_cast<uint16_t*>(p));
  }
}

// p[0, n) and zeros, n < Lanes. Reads nothing beyond p + n. g++ 14 needs the bound of the loop to see that.
template <typename T>
HWY_INLINE Vec<Stat<T>> LoadN(const T* p, int64_t n) {
#if !HWY_MEM_OPS_MIGHT_FAULT
  if constexpr (sizeof(T) == sizeof(BFloat16)) {
    const TagBits16 d;
    return WidenBits(
        hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, reinterpret_cast<const uint16_t*>(p)));
  } else {
    const Tag<T> d;
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n)), d, p);
  }
#else
  constexpr int64_t kLanes = hn::MaxLanes(Tag<Stat<T>>());
  HWY_ALIGN T buffer[kLanes] = {};
  for (int64_t i = 0; i < std::min(n, kLanes); ++i) buffer[i] = p[i];
  return Load(buffer);
#endif
}

// Copies fewer than 2 * kSize bytes, in at most two parts of equal size, which may overlap.
template <int64_t kSize>
HWY_INLINE void CopyFew(const void* from, void* to, int64_t bytes) {
  if (bytes >= kSize) {
    const int64_t second = bytes - kSize;
    std::memcpy(to, from, kSize);
    std::memcpy(static_cast<char*>(to) + second, static_cast<const char*>(from) + second, kSize);
  } else if constexpr (kSize > 1) {
    CopyFew<kSize / 2>(from, to, bytes);
  }
}

// p[0, n) = v, n < Lanes. Writes nothing beyond p + n. A store with a mask would be slow: on many CPUs
// always, on others if its masked part is in a cache line that is streamed.
template <typename T>
HWY_INLINE void StoreN(Vec<Stat<T>> v, T* p, int64_t n) {
  HWY_ALIGN T buffer[hn::MaxLanes(Tag<Stat<T>>())];
  Store(v, buffer);
  CopyFew<sizeof(buffer) / 2>(buffer, p, n * static_cast<int64_t>(sizeof(T)));
}

// v with zeros from lane n on.
template <typename P>
HWY_INLINE Vec<P> KeepN(Vec<P> v, int64_t n) {
  return hn::IfThenElseZero(hn::FirstN(Tag<P>(), static_cast<size_t>(n)), v);
}

template <typename P>
HWY_INLINE Vec<P> Relu(Vec<P> v) {
  return hn::IfThenZeroElse(hn::Lt(v, hn::Zero(Tag<P>())), v);
}

// Per lane the third smallest of five values: one or two outliers do not move it.
template <class V>
HWY_INLINE V MedianOfFive(V a, V b, V c, V d, V e) {
  const V low = hn::Max(hn::Min(a, b), hn::Min(c, d));
  const V high = hn::Min(hn::Max(a, b), hn::Max(c, d));
  return hn::Max(hn::Min(low, high), hn::Min(hn::Max(low, high), e));
}

// The sum of all lanes, in double.
template <typename P>
HWY_INLINE double SumLanes(const P* lanes) {
  double sum = 0.0;
  for (int64_t i = 0; i < Lanes<P>(); ++i) sum += static_cast<double>(lanes[i]);
  return sum;
}

// Fetches the line of the value `distance` beyond p, which may be outside of p's array. Never faults.
template <typename T>
HWY_INLINE void PrefetchAt(const T* p, int64_t distance) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(p) + sizeof(T) * static_cast<uintptr_t>(distance);
  hwy::Prefetch(reinterpret_cast<const uint8_t*>(address));
}

// Fetches the lines of the n values that are `distance` beyond p.
template <typename T>
HWY_INLINE void PrefetchValues(const T* p, int64_t n, int64_t distance) {
  for (int64_t k = 0; k < n; k += kValuesPerLine<T>) PrefetchAt(p + k, distance);
}

// Prefetches the lines of the first and of the last value of the `count` values that are `distance` beyond p.
// The ends of a row whose other lines are streamed are stored to.
template <typename T>
HWY_INLINE void PrefetchEnds(const T* p, int64_t count, int64_t distance) {
  PrefetchAt(p, distance);
  PrefetchAt(p, distance + count - 1);
}

// Writes values [done, s) of a row, less than a vector: with a whole vector that ends with the row, if there
// is room for it, because StoreN goes through memory. The values that it writes again do not change. Not so
// into a line that was streamed.
template <class Apply>
HWY_INLINE void WriteTail(Apply& apply, int64_t done, int64_t s, int64_t lanes) {
  if (!Apply::kStreams && s >= lanes) {
    apply.Step(s - lanes);
  } else {
    apply.StepN(done, s - done);
  }
}

// How many of s elements at p lie before the first cache line border.
template <typename T>
HWY_INLINE int64_t ElementsToLine(const T* p, int64_t s) {
  const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(p) % kLineBytes);
  return std::min<int64_t>(s, past == 0 ? 0 : (kLineBytes - past) / static_cast<int64_t>(sizeof(T)));
}

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_VECTOR_INL_H_
