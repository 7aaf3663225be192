// Arithmetic along channels: vectors of double as long as those of the statistics' type, and loads that stop
// at the last channel.
#if defined(RENORM_KERNELS_SIMD_CHANNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_CHANNELS_INL_H_
#undef RENORM_KERNELS_SIMD_CHANNELS_INL_H_
#else
#define RENORM_KERNELS_SIMD_CHANNELS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

using VecD = Vec<double>;

// As many doubles as Vec<P> has lanes.
template <typename P>
struct Wide;
template <>
struct Wide<double> {
  static constexpr int kParts = 1;
  VecD part[1];
};
template <>
struct Wide<float> {
  static constexpr int kParts = HWY_TARGET == HWY_SCALAR ? 1 : 2;
  VecD part[kParts];
};

template <typename P, class Op>
HWY_INLINE Wide<P> Each(const Op& op, const Wide<P>& a, const Wide<P>& b) {
  Wide<P> out;
  for (int k = 0; k < Wide<P>::kParts; ++k) out.part[k] = op(a.part[k], b.part[k]);
  return out;
}
template <typename P>
HWY_INLINE Wide<P> operator+(const Wide<P>& a, const Wide<P>& b) {
  return Each([](VecD x, VecD y) HWY_ATTR { return hn::Add(x, y); }, a, b);
}
template <typename P>
HWY_INLINE Wide<P> operator-(const Wide<P>& a, const Wide<P>& b) {
  return Each([](VecD x, VecD y) HWY_ATTR { return hn::Sub(x, y); }, a, b);
}
template <typename P>
HWY_INLINE Wide<P> operator*(const Wide<P>& a, const Wide<P>& b) {
  return Each([](VecD x, VecD y) HWY_ATTR { return hn::Mul(x, y); }, a, b);
}
template <typename P>
HWY_INLINE Wide<P> operator/(const Wide<P>& a, const Wide<P>& b) {
  return Each([](VecD x, VecD y) HWY_ATTR { return hn::Div(x, y); }, a, b);
}
// 0 where a < 0; NaN stays NaN.
template <typename P>
HWY_INLINE Wide<P> NotBelowZero(const Wide<P>& a) {
  return Each([](VecD x, VecD) HWY_ATTR { return Relu<double>(x); }, a, a);
}

template <typename P>
HWY_INLINE Wide<P> SetWide(double value) {
  Wide<P> out;
  for (int k = 0; k < Wide<P>::kParts; ++k) out.part[k] = hn::Set(Tag<double>(), value);
  return out;
}

HWY_INLINE Wide<double> Widen(Vec<double> v) { return {{v}}; }
HWY_INLINE Vec<double> Narrow(const Wide<double>& v) { return v.part[0]; }

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE Wide<float> Widen(Vec<float> v) { return {{hn::PromoteTo(Tag<double>(), v)}}; }
HWY_INLINE Vec<float> Narrow(const Wide<float>& v) { return hn::DemoteTo(Tag<float>(), v.part[0]); }
#else
using HalfFloat = hn::Half<Tag<float> >;
HWY_INLINE Wide<float> Widen(Vec<float> v) {
  return {{hn::PromoteTo(Tag<double>(), hn::LowerHalf(HalfFloat(), v)),
           hn::PromoteTo(Tag<double>(), hn::UpperHalf(HalfFloat(), v))}};
}
HWY_INLINE Vec<float> Narrow(const Wide<float>& v) {
  return hn::Combine(Tag<float>(), hn::DemoteTo(HalfFloat(), v.part[1]),
                     hn::DemoteTo(HalfFloat(), v.part[0]));
}
#endif

// The first n of a vector's lanes, n from 1 to all; the others read as zero and are not written.
template <typename P>
HWY_INLINE Vec<P> LoadUpTo(const P* p, int64_t n) {
  return n >= Lanes<P>() ? Load(p) : LoadN(p, n);
}
template <typename P>
HWY_INLINE void StoreUpTo(Vec<P> v, P* p, int64_t n) {
  n >= Lanes<P>() ? Store(v, p) : StoreN(v, p, n);
}
template <typename P>
HWY_INLINE Wide<P> LoadWideUpTo(const double* p, int64_t n) {
  Wide<P> out;
  for (int k = 0; k < Wide<P>::kParts; ++k) {
    const int64_t first = k * Lanes<double>();
    out.part[k] = n > first ? LoadUpTo(p + first, n - first) : hn::Zero(Tag<double>());
  }
  return out;
}
template <typename P>
HWY_INLINE void StoreWideUpTo(const Wide<P>& v, double* p, int64_t n) {
  for (int k = 0; k < Wide<P>::kParts; ++k) {
    const int64_t first = k * Lanes<double>();
    if (n > first) StoreUpTo(v.part[k], p + first, n - first);
  }
}

// Calls body(i, n) for every vector of `count` channels: n channels from channel i.
template <typename P, class Body>
HWY_INLINE void ForChannels(int64_t count, const Body& body) {
  const int64_t lanes = Lanes<P>();
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, lanes);
  if (i < count) body(i, count - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_CHANNELS_INL_H_
