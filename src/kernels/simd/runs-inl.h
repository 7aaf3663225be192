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
#include "kernels/simd/internal.h"
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

// Three coefficients per channel of a unit, and the same per value of its runs. In front of them are those of
// the last values of the unit before.
template <typename P>
class RunCoefficients {
 public:
  RunCoefficients(int64_t block, int64_t s)
      : block_(block),
        s_(s),
        channel_(3 * block_),
        value_{Scratch<P>(block * s), Scratch<P>(block * s), Scratch<P>(block * s)} {}

  P* channel(int k) { return channel_.get() + k * block_; }
  P* value(int k) { return value_[k].get(head_); }
  simd::Affine<P> Channels() { return {channel(0), channel(1), channel(2)}; }
  simd::Affine<P> Values(int64_t from = 0) { return {value(0) + from, value(1) + from, value(2) + from}; }

  // Takes the values from the channels of a unit. `before` has the unit before it and may be this one. `head`
  // as in Scratch::get().
  HWY_INLINE void Expand(RunCoefficients& before, int64_t width, int64_t head) {
    for (int k = 0; k < 3; ++k) {
      P* values = value_[k].get(head);
      if (before.count_ > 0) std::copy_n(before.value(k) + before.count_ - kLead, kLead, values - kLead);
      HWY_NAMESPACE::Expand(channel(k), width, s_, values);
    }
    head_ = head;
    count_ = width * s_;
  }

 private:
  // The values of a cache line, which are half as wide as P at least. Units that others follow have more.
  static constexpr int64_t kLead = 2 * Scratch<P>::kLine;

  int64_t block_;
  int64_t s_;
  int64_t head_ = 0;
  int64_t count_ = 0;
  Scratch<P> channel_;
  Scratch<P> value_[3];
};

// How the runs of a unit are written. A cache line with the end of one unit's run and the start of the next
// one's is written with the latter: a partial store to a line that is not in the cache would hold up the
// stores behind it.
struct RunSpans {
  bool leads = false;   // lines with the end of the unit before are written with this one
  bool trails = false;  // lines with the start of the unit after are not
  int64_t values = 0;   // of a run
  int64_t ahead = 0;    // from a run to that of the unit after, 0: there is none

  struct Span {
    int64_t lead;  // values before the run
    int64_t count;
  };
  // Of the run that starts at y.
  template <typename T>
  HWY_INLINE Span Of(const T* y) const {
    const int64_t lead = leads ? PastLine(y) : 0;
    return {lead, lead + values - (trails ? PastLine(y + values) : 0)};
  }

 private:
  template <typename T>
  static HWY_INLINE int64_t PastLine(const T* p) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p) % kLineBytes / sizeof(T));
  }
};

// The spans of the units of one pipeline, in turn.
class SpanTurns {
 public:
  // Of the unit that is written next. `after` is the one behind it, or null.
  HWY_INLINE RunSpans Next(const NcsGeometry& geometry, const NcsUnit& unit, const NcsUnit* after) {
    RunSpans spans;
    spans.leads = trailed_;
    spans.trails = trailed_ = after != nullptr && after->group == unit.group;
    spans.values = unit.width * geometry.shape.s;
    if (after != nullptr) spans.ahead = geometry.Row(*after, 0, 0) - geometry.Row(unit, 0, 0);
    return spans;
  }

 private:
  bool trailed_ = false;
};

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
  const int64_t stride = geometry.Stride(reverse);
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
