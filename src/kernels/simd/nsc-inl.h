// Channels-last units: which rows they have, and the order in which rows are summed.
#if defined(RENORM_KERNELS_SIMD_NSC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_NSC_INL_H_
#undef RENORM_KERNELS_SIMD_NSC_INL_H_
#else
#define RENORM_KERNELS_SIMD_NSC_INL_H_
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

// kAhead while sums are gathered from several places at once.
template <typename T>
constexpr int64_t kGatherAhead = kAhead<T> / 2;

// With a residual, two rows of this size or a multiple are written at once instead of kRowsAtOnce: the values
// of a channel in three arrays compete for the same places of the innermost cache.
constexpr int64_t kPageBytes = 4096;

// Where the rows of a channels-last problem are.
struct NscGeometry {
  Shape shape;
  Groups groups;
  simd::NscPlan plan;

  int64_t Group(int64_t unit) const { return unit / plan.blocks; }
  int64_t FirstRow(int64_t unit) const { return unit % plan.blocks * plan.rows; }
  int64_t LastRow(int64_t unit) const { return std::min(FirstRow(unit) + plan.rows, groups.size * shape.s); }

  // Offset of row number `row` of the unit, in elements.
  HWY_INLINE int64_t RowOffset(int64_t unit, int64_t row) const {
    const int64_t number = FirstRow(unit) + row;
    const int64_t example = number / shape.s;
    const int64_t n = Group(unit) * groups.group_step + example * groups.example_step;
    return (n * shape.s + number - example * shape.s) * shape.c;
  }

  // Calls body(offset, stride, rows) for runs of evenly spaced rows, in elements, that make up the unit, in
  // order.
  template <class Body>
  HWY_INLINE void ForRuns(int64_t unit, const Body& body) const {
    const int64_t start = Group(unit) * groups.group_step;
    const int64_t first = FirstRow(unit);
    const int64_t last = LastRow(unit);
    const int64_t c = shape.c;
    if (groups.example_step == 1) {
      body((start * shape.s + first) * c, c, last - first);
    } else if (shape.s == 1) {
      body((start + first * groups.example_step) * c, groups.example_step * c, last - first);
    } else {
      for (int64_t row = first; row < last;) {
        const int64_t example = row / shape.s;
        const int64_t end = std::min(last, (example + 1) * shape.s);
        const int64_t n = start + example * groups.example_step;
        body((n * shape.s + row - example * shape.s) * c, c, end - row);
        row = end;
      }
    }
  }
};

// Sums `rows` rows, `stride` elements from one to the next, in chunks: sums.Rows<kRows, kFirst>(offset,
// apart) adds kRows rows that are `apart` elements apart and starts a chunk if kFirst, sums.Merge(rows) ends
// it. Rows that are added together are a quarter of the run apart, so that each quarter is read in order.
// CPUs fetch four such streams ahead, faster than one, but do not recognize a stream in neighbouring rows
// read together.
template <class Sums>
HWY_INLINE void AddRowsOfRun(Sums& sums, int64_t stride, int64_t rows) {
  constexpr int64_t kTurns = kChunkRows / kRowsAtOnce;
  const int64_t quarter = rows / kRowsAtOnce;
  const int64_t apart = quarter * stride;
  int64_t row = 0;
  for (; row + kTurns < quarter; row += kTurns) {
    sums.template Rows<kRowsAtOnce, true>(row * stride, apart);
    for (int64_t k = 1; k < kTurns; ++k) sums.template Rows<kRowsAtOnce, false>((row + k) * stride, apart);
    sums.Merge(static_cast<double>(kChunkRows));
  }
  // The last chunk takes the rows that are left over.
  const int64_t first = row;
  if (row < quarter) {
    sums.template Rows<kRowsAtOnce, true>(row * stride, apart);
    while (++row < quarter) sums.template Rows<kRowsAtOnce, false>(row * stride, apart);
  }
  for (int64_t rest = kRowsAtOnce * quarter; rest < rows; ++rest) {
    rest == 0 ? sums.template Rows<1, true>(0, 0) : sums.template Rows<1, false>(rest * stride, 0);
  }
  sums.Merge(static_cast<double>(rows - kRowsAtOnce * first));
}

// Writes `rows` rows, `stride` elements from one to the next: output_at(row) is a RowOutput or RowGradient.
template <typename T, Ending kEnding, bool kStream, class OutputAt>
HWY_INLINE void WriteRun(const OutputAt& output_at, int64_t stride, int64_t rows, int64_t c) {
  int64_t row = 0;
  if constexpr (!kStream) {
    const bool two = kEnding == Ending::kResidual && c * static_cast<int64_t>(sizeof(T)) % kPageBytes == 0;
    // Rows at once start at any value, which would divide bytes of a mask.
    const bool one = kEnding == Ending::kResidual && c % 8 != 0;
    if (two) {
      for (; row + 2 <= rows; row += 2) output_at(row).template Rows<2>(stride, c);
    } else if (!one) {
      for (; row + kRowsAtOnce <= rows; row += kRowsAtOnce) {
        output_at(row).template Rows<kRowsAtOnce>(stride, c);
      }
    }
  }
  for (; row < rows; ++row) {
    auto output = output_at(row);
    AlongRow<Stat<T>>(output, c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_NSC_INL_H_
