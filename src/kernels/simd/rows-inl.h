// Channels-first loops over rows: one row, and all rows of a unit.
#if defined(RENORM_KERNELS_SIMD_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_ROWS_INL_H_
#undef RENORM_KERNELS_SIMD_ROWS_INL_H_
#else
#define RENORM_KERNELS_SIMD_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/simd/ncs-inl.h"
#include "kernels/simd/vector-inl.h"

// A lambda whose call would pass vectors through memory.
#undef RENORM_INLINE_LAMBDA
#define RENORM_INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// Values summed in the data's own precision before they are merged in double.
constexpr int64_t kChunk = 2048;
// Vectors per iteration of the loop: enough independent sums to hide the latency of an addition.
constexpr int kUnroll = 4;

// Two sums over one channel: lanes that collect about kChunk values before they are added to doubles. The
// order of additions depends on the channel's own values alone.
template <typename P>
struct LaneSums {
  HWY_ALIGN P first[hn::MaxLanes(Tag<P>())];
  HWY_ALIGN P second[hn::MaxLanes(Tag<P>())];
  int64_t count;

  HWY_INLINE void Clear() {
    Store(hn::Zero(Tag<P>()), first);
    Store(hn::Zero(Tag<P>()), second);
    count = 0;
  }
  HWY_INLINE void Add(Vec<P> a, Vec<P> b, int64_t values) {
    Store(hn::Add(Load(first), a), first);
    Store(hn::Add(Load(second), b), second);
    count += values;
  }
};

// kUnroll pairs of vector sums, in registers.
template <typename P>
struct VectorSums {
  Vec<P> a[kUnroll];
  Vec<P> b[kUnroll];

  HWY_INLINE void Clear() {
    for (int k = 0; k < kUnroll; ++k) a[k] = b[k] = hn::Zero(Tag<P>());
  }
  HWY_INLINE void AddTo(LaneSums<P>& sums, int64_t values) const {
    sums.Add(hn::Add(hn::Add(a[0], a[1]), hn::Add(a[2], a[3])),
             hn::Add(hn::Add(b[0], b[1]), hn::Add(b[2], b[3])), values);
  }
};

// The first n lanes are zero.
template <typename P>
HWY_INLINE Vec<P> DropN(Vec<P> v, int64_t n) {
  return hn::IfThenZeroElse(hn::FirstN(Tag<P>(), static_cast<size_t>(n)), v);
}

// Replace Gather or Apply for a row that is only written or only gathered.
struct NoGather {
  static constexpr bool kActive = false;
};
struct NoApply {
  static constexpr bool kActive = false;
};

// A Gather adds the vector at i to pair k of its sums with Step(i, k), the last n values with StepN(i, n),
// and the vector at i without its first `done` values with StepRest(i, done). Begin and End surround at most
// kChunk values. An Apply writes the output at i with Step(i) and StepN(i, n), and whole aligned lines of it
// with StreamStep. Fetch(i, n), and FetchEnds(i, n) for less than a vector, prefetch what is needed later.
// The two work on different rows of s values, independently.
template <typename P, class Gather, class Apply>
HWY_INLINE void ForRow(Gather& gather, Apply& apply, int64_t s) {
  const int64_t lanes = Lanes<P>();
  const int64_t turn = kUnroll * lanes;
  int64_t done = 0;  // written so far
  if constexpr (Apply::kActive) {
    const int64_t head = apply.Head(s);
    for (; done + lanes <= head; done += lanes) apply.Step(done);
    if (done < head) apply.StepN(done, head - done);
    done = head;
  }
  if constexpr (Gather::kActive) {
    for (int64_t first = 0; first < s; first += kChunk) {
      const int64_t last = std::min(first + kChunk, s);
      int64_t i = first;
      gather.Begin();
      if constexpr (Apply::kActive) {
        // Line by line: bursts of lines that are streamed to several arrays take longer.
        const int64_t line = std::max(lanes, Apply::kLine);
        for (; i + turn <= last && done + turn <= s; i += turn, done += turn) {
          for (int k = 0; k < kUnroll; ++k) {
            const int64_t at = k * lanes;
            if (at % line == 0) {
              gather.Fetch(i + at, line);
              apply.Fetch(done + at, line);
            }
            gather.Step(i + at, k);
            apply.StreamStep(done + at);
          }
        }
      }
      for (; i + turn <= last; i += turn) {
        gather.Fetch(i, turn);
        for (int k = 0; k < kUnroll; ++k) gather.Step(i + k * lanes, k);
      }
      for (; i + lanes <= last; i += lanes) {
        gather.Fetch(i, lanes);
        gather.Step(i, 0);
      }
      if (i < last) {
        gather.FetchEnds(i, last - i);
        gather.StepN(i, last - i);
      }
      gather.End(last - first);
    }
  }
  if constexpr (Apply::kActive) {
    for (; done + turn <= s; done += turn) {
      apply.Fetch(done, turn);
      for (int k = 0; k < kUnroll; ++k) apply.StreamStep(done + k * lanes);
    }
    const int64_t line = std::max(lanes, Apply::kLine);
    for (; done + line <= s; done += line) {
      apply.Fetch(done, line);
      for (int64_t k = 0; k < line; k += lanes) apply.StreamStep(done + k);
    }
    for (; done + lanes <= s; done += lanes) apply.Step(done);
    if (done < s) WriteTail(apply, done, s, lanes);
  }
}

// All rows of both units: writes `current`, gathers `next`; either may be null. Examples go backwards if
// `reverse`.
template <typename P, class Pass>
HWY_NOINLINE void ForUnits(Pass& pass, const NcsGeometry& geometry, const NcsUnit* current,
                           const NcsUnit* next, bool reverse) {
  NoGather no_gather;
  NoApply no_apply;
  const int64_t apply_width = current != nullptr ? current->width : 0;
  const int64_t gather_width = next != nullptr ? next->width : 0;
  const int64_t both = std::min(apply_width, gather_width);
  const int64_t s = geometry.shape.s;
  const int64_t stride = geometry.Stride(reverse);
  for (int64_t i = 0; i < geometry.groups.size; ++i) {
    const int64_t n = reverse ? geometry.groups.size - 1 - i : i;
    // From a row to the one that follows: of the next example, or of the next unit, which starts with this
    // one.
    const bool last = i + 1 == geometry.groups.size;
    const int64_t to_apply = last ? apply_width * s : stride;
    const int64_t to_gather = last ? gather_width * s : stride;
    for (int64_t j = 0; j < both; ++j) {
      auto apply = pass.Applier(geometry.Row(*current, n, j), j, to_apply);
      auto gather = pass.Gatherer(geometry.Row(*next, n, j), j, to_gather);
      ForRow<P>(gather, apply, s);
    }
    for (int64_t j = both; j < apply_width; ++j) {
      auto apply = pass.Applier(geometry.Row(*current, n, j), j, to_apply);
      ForRow<P>(no_gather, apply, s);
    }
    for (int64_t j = both; j < gather_width; ++j) {
      auto gather = pass.Gatherer(geometry.Row(*next, n, j), j, to_gather);
      ForRow<P>(gather, no_apply, s);
    }
  }
}

// Rows of at least a vector, one by one (NcsPlan::single). The last vector ends with the row: its first lanes
// may be values of the vector before.
static_assert(hn::MaxLanes(Tag<float>()) <= 32);  // the shortest rows
template <typename P, class Gather>
HWY_INLINE void GatherSingleRow(Gather& gather, int64_t s) {
  const int64_t lanes = Lanes<P>();
  const int64_t turn = kUnroll * lanes;
  int64_t i = 0;
  gather.Begin();
  for (; i + turn <= s; i += turn) {
    gather.Fetch(i, turn);
    for (int k = 0; k < kUnroll; ++k) gather.Step(i + k * lanes, k);
  }
  if (i < s) gather.Fetch(i, s - i);
  if (i + 2 * lanes <= s) {
    gather.Step(i, 0);
    gather.Step(i + lanes, 1);
    i += 2 * lanes;
  }
  if (i + lanes <= s) {
    gather.Step(i, 2);
    i += lanes;
  }
  if (i < s) gather.StepRest(s - lanes, lanes - (s - i));
  gather.End(s);
}
template <typename P, class Apply>
HWY_INLINE void WriteSingleRow(Apply& apply, int64_t s) {
  const int64_t lanes = Lanes<P>();
  const int64_t line = std::max(lanes, Apply::kLine);
  int64_t i = 0;
  for (; i + line <= s; i += line) {
    apply.Fetch(i, line);
    for (int64_t k = 0; k < line; k += lanes) apply.Step(i + k);
  }
  if (i < s) apply.Fetch(i, 1);
  for (; i + lanes <= s; i += lanes) apply.Step(i);
  if (i < s) apply.Step(s - lanes);
}

// Calls row(offset, j, next) for the rows of a unit, example by example. `next` leads to the channel's row of
// the next example, also after the last one.
template <class Row>
HWY_INLINE void ForSingleRows(const NcsGeometry& geometry, const NcsUnit& unit, bool reverse,
                              const Row& row) {
  const int64_t s = geometry.shape.s;
  const int64_t width = unit.width;
  const int64_t size = geometry.groups.size;
  const int64_t stride = geometry.Stride(reverse);
  int64_t first = geometry.Row(unit, reverse ? size - 1 : 0, 0);
  for (int64_t i = 0; i < size; ++i, first += stride) {
    for (int64_t j = 0; j < width; ++j) row(first + j * s, j, stride);
  }
}

// As ForUnits, for data in cache: no memory has to be waited for, so one unit is written before the next is
// gathered.
template <typename P, class Pass>
HWY_NOINLINE void ForSingleUnits(Pass& pass, const NcsGeometry& geometry, const NcsUnit* current,
                                 const NcsUnit* next, bool reverse) {
  const int64_t s = geometry.shape.s;
  if (current != nullptr) {
    const auto applier = pass.Appliers();
    ForSingleRows(geometry, *current, reverse,
                  [&](int64_t row, int64_t j, int64_t to_next) RENORM_INLINE_LAMBDA {
                    auto apply = applier(row, j, to_next);
                    WriteSingleRow<P>(apply, s);
                  });
  }
  if (next != nullptr) {
    const auto gatherer = pass.Gatherers();
    ForSingleRows(geometry, *next, reverse,
                  [&](int64_t row, int64_t j, int64_t to_next) RENORM_INLINE_LAMBDA {
                    auto gather = gatherer(row, j, to_next);
                    GatherSingleRow<P>(gather, s);
                  });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_ROWS_INL_H_
