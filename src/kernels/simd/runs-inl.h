// Channels-first data with short rows. The rows of a unit's channels are neighbours in memory: in each
// example they are one run of width * s values. A run is processed like a row of channels, with coefficients
// and sums per value instead of per channel, so that no vector stops at the end of a row.
#if defined(RENORM_KERNELS_SIMD_RUNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_RUNS_INL_H_
#undef RENORM_KERNELS_SIMD_RUNS_INL_H_
#else
#define RENORM_KERNELS_SIMD_RUNS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/along-inl.h"
#include "kernels/simd/channels-inl.h"
#include "kernels/simd/ncs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// values[j * s, (j + 1) * s) = of_channel[j] for `width` channels. Writes up to a vector beyond them.
template <typename P>
HWY_INLINE void Expand(const P* HWY_RESTRICT of_channel, int64_t width, int64_t s, P* HWY_RESTRICT values) {
  for (int64_t j = 0; j < width; ++j) {
    const Vec<P> value = hn::Set(Tag<P>(), of_channel[j]);
    for (int64_t i = 0; i < s; i += Lanes<P>()) Store(value, values + j * s + i);
  }
}

// The sum of s values, in double.
template <typename P>
HWY_INLINE double SumRow(const P* values, int64_t s) {
  Wide<P> sum = SetWide<P>(0.0);
  int64_t i = 0;
  for (; i + Lanes<P>() <= s; i += Lanes<P>()) sum = sum + Widen(Load(values + i));
  if (i < s) sum = sum + Widen(LoadN(values + i, s - i));
  VecD total = sum.part[0];
  for (int k = 1; k < Wide<P>::kParts; ++k) total = hn::Add(total, sum.part[k]);
  HWY_ALIGN double lanes[hn::MaxLanes(Tag<double>())];
  Store(total, lanes);
  return SumLanes(lanes);
}

// Both units of NcsGeometry's pipeline, kRowsAtOnce examples at a time: pass.Write(offset, next) writes one
// run, which the one at offset + next follows; pass.Gather(offset, stride, runs) gathers evenly spaced ones.
template <class Pass>
HWY_INLINE void ForUnitRuns(Pass& pass, const NcsGeometry& geometry, const NcsUnit* current,
                            const NcsUnit* next, bool reverse) {
  const int64_t size = geometry.groups.size;
  const int64_t stride =
      (reverse ? -1 : 1) * geometry.groups.example_step * geometry.shape.c * geometry.shape.s;
  const int64_t start = reverse ? size - 1 : 0;
  for (int64_t i = 0; i < size; i += kRowsAtOnce) {
    const int64_t runs = std::min<int64_t>(kRowsAtOnce, size - i);
    if (current != nullptr) {
      const int64_t offset = geometry.Row(*current, start, 0) + i * stride;
      for (int64_t k = 0; k < runs; ++k) pass.Write(offset + k * stride, stride);
    }
    if (next != nullptr) pass.Gather(geometry.Row(*next, start, 0) + i * stride, stride, runs);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_RUNS_INL_H_
