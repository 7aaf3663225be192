// How vectors go along one row whose neighbouring values have different coefficients: a row of channels, or a
// run of several short rows.
#if defined(RENORM_KERNELS_SIMD_ALONG_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RENORM_KERNELS_SIMD_ALONG_INL_H_
#undef RENORM_KERNELS_SIMD_ALONG_INL_H_
#else
#define RENORM_KERNELS_SIMD_ALONG_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <memory>

#include "kernels/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// Rows summed in the data's own precision before they are merged in double.
constexpr int64_t kChunkRows = 64;
// Rows processed together, so that a sum is loaded and stored once for all of them.
constexpr int kRowsAtOnce = 4;
// Cache lines of a row per turn of its loop.
constexpr int64_t kLinesAtOnce = 4;

// Scratch of c values, rounded up so that whole vectors fit.
template <typename P>
class Scratch {
 public:
  static constexpr int64_t kLine = kValuesPerLine<P>;

  explicit Scratch(int64_t c) : data_(new P[static_cast<size_t>(c + 6 * kLine)]), values_(data_.get()) {
    values_ += ElementsToLine(values_, kLine);
  }
  P* get() { return values_; }
  // The values from `head` elements before the border of a cache line: aligned like data that has this head.
  // Two lines of scratch are before them.
  P* get(int64_t head) { return values_ + (3 * kLine - head); }

 private:
  std::unique_ptr<P[]> data_;
  P* values_;
};

// How many of the first values at p lie before the first whole vector that is aligned.
template <typename T>
HWY_INLINE int64_t HeadOf(const T* p) {
  return ElementsToLine(p, kLineBytes) % kValuesPerLine<Stat<T>>;
}

// Applies op.Step(i), op.StepN(i, n) along c values, and op.StreamStep on the aligned lines in between.
template <typename P, class Op>
HWY_INLINE void AlongRow(Op& op, int64_t c) {
  const int64_t lanes = Lanes<P>();
  const int64_t head = op.Head(c);
  int64_t i = 0;
  for (; i + lanes <= head; i += lanes) op.Step(i);
  if (i < head) op.StepN(i, head - i);
  i = head;
  const int64_t line = std::max(lanes, Op::kLine);
  // Several lines per turn: with fewer instructions per line the CPU has more loads under way.
  for (; i + kLinesAtOnce * line <= c; i += kLinesAtOnce * line) {
    for (int64_t k = 0; k < kLinesAtOnce; ++k) op.Prefetch(i + k * line);
    for (int64_t k = 0; k < kLinesAtOnce * line; k += lanes) op.StreamStep(i + k);
  }
  for (; i + line <= c; i += line) {
    op.Prefetch(i);
    for (int64_t k = 0; k < line; k += lanes) op.StreamStep(i + k);
  }
  for (; i + lanes <= c; i += lanes) op.Step(i);
  if (i < c) WriteTail(op, i, c, lanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#endif  // RENORM_KERNELS_SIMD_ALONG_INL_H_
