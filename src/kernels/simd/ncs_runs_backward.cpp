// Channels-first backward with short rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/ncs_runs_backward.cpp"
#include "kernels/simd/targets.h"
// targets.h comes first.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <utility>

#include "kernels/simd/backward_rows-inl.h"
#include "kernels/simd/ending-inl.h"
#include "kernels/simd/fold-inl.h"
#include "kernels/simd/internal.h"
#include "kernels/simd/runs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// The two sums of a unit's channels. Sums per value of a run become sums per channel every kChunkRows runs.
template <typename T, Ending kEnding>
class RunSums {
  using P = Stat<T>;

 public:
  RunSums(int64_t block, int64_t s) : s_(s), sum_(block * s), products_(block * s) {}

  // The sums start at first[0, width) and second[0, width).
  HWY_INLINE void Start(int64_t width, int64_t head, double* first, double* second) {
    width_ = width;
    head_ = std::min(head, width * s_);
    runs_ = 0;
    first_ = first;
    second_ = second;
    std::fill(first, first + width, 0.0);
    std::fill(second, second + width, 0.0);
  }

  HWY_NOINLINE void Add(const GradientData<T>& data, int64_t stride, int64_t runs,
                        const simd::Affine<P>& affine) {
    if (runs == kRowsAtOnce) {
      runs_ == 0 ? AddRuns<kRowsAtOnce, true>(data, stride, affine)
                 : AddRuns<kRowsAtOnce, false>(data, stride, affine);
    } else {
      runs_ == 0 ? AddRuns<1, true>(data, stride, affine) : AddRuns<1, false>(data, stride, affine);
      for (int64_t k = 1; k < runs; ++k) AddRuns<1, false>(data.At(k * stride), stride, affine);
    }
    runs_ += runs;
    if (runs_ >= kChunkRows) Flush();
  }

  HWY_NOINLINE void Flush() {
    if (runs_ == 0) return;
    for (int64_t j = 0; j < width_; ++j) {
      first_[j] += SumRow(sum_.get(head_) + j * s_, s_);
      second_[j] += SumRow(products_.get(head_) + j * s_, s_);
    }
    runs_ = 0;
  }

 private:
  template <int kRows, bool kFirst>
  HWY_INLINE void AddRuns(const GradientData<T>& data, int64_t stride, const simd::Affine<P>& affine) {
    AddRows<T, kEnding, kRows, kFirst>(data, stride, width_ * s_, affine, sum_.get(head_),
                                       products_.get(head_), head_);
  }

  int64_t s_;
  int64_t width_ = 0;
  int64_t head_ = 0;
  int64_t runs_ = 0;
  double* first_ = nullptr;
  double* second_ = nullptr;
  Scratch<P> sum_;
  Scratch<P> products_;
};

template <typename T, Ending kEnding, bool kStream>
class BackwardRuns {
  using P = Stat<T>;

 public:
  BackwardRuns(const Backward<T>& problem, const NcsGeometry& geometry, const simd::Sums& out)
      : problem_(problem),
        geometry_(geometry),
        data_(DataOf(problem)),
        out_(out),
        sums_(geometry.plan.block, geometry.shape.s),
        buffers_{{geometry.plan.block, geometry.shape.s}, {geometry.plan.block, geometry.shape.s}},
        gradient_(geometry.plan.block, geometry.shape.s) {}

  HWY_INLINE void Start(const NcsUnit& unit) {
    const int64_t row = unit.group * geometry_.shape.c + unit.first;
    AffineOf<T>(problem_, unit.group, unit.first, unit.first + unit.width, gathered_->Channels());
    const int64_t head = HeadOf(problem_.x + geometry_.Row(unit, 0, 0));
    gathered_->Expand(*applied_, unit.width, head);
    sums_.Start(unit.width, head, out_.first + row, out_.second + row);
  }
  HWY_INLINE void Run(const NcsUnit* current, const NcsUnit* next, bool reverse) {
    if (current != nullptr) spans_ = turns_.Next(geometry_, *current, next);
    ForUnitRuns(*this, geometry_, current, next, reverse);
  }
  HWY_INLINE void Gather(int64_t offset, int64_t stride, int64_t runs) {
    sums_.Add(data_.At(offset), stride, runs, gathered_->Values());
  }
  HWY_INLINE void Fold(const NcsUnit& unit) {
    const int64_t row = unit.group * geometry_.shape.c + unit.first;
    sums_.Flush();
    const double count = static_cast<double>(geometry_.groups.size * geometry_.shape.s);
    FoldBackward<T>(problem_, unit.group, unit.first, unit.first + unit.width, count, out_.first + row,
                    out_.second + row, {gradient_.channel(0), gradient_.channel(1), gradient_.channel(2)});
    gradient_.Expand(gradient_, unit.width, HeadOf(problem_.x + geometry_.Row(unit, 0, 0)));
    std::swap(applied_, gathered_);
  }
  HWY_INLINE void Write(int64_t run, int64_t next) {
    const RunSpans::Span span = spans_.Of((problem_.dx != nullptr ? problem_.dx : problem_.dresidual) + run);
    const int64_t offset = run - span.lead;
    const simd::Affine<P> gradient = gradient_.Values(-span.lead);
    RowGradient<T, kEnding, kStream> output{
        data_.At(offset),
        problem_.dx == nullptr ? nullptr : problem_.dx + offset,
        problem_.dresidual == nullptr ? nullptr : problem_.dresidual + offset,
        applied_->Values(-span.lead),
        {gradient.mean, gradient.scale, gradient.shift},
        next,
        spans_.ahead};
    AlongRow<P>(output, span.count);
  }

 private:
  const Backward<T>& problem_;
  const NcsGeometry& geometry_;
  GradientData<T> data_;
  simd::Sums out_;
  SpanTurns turns_;
  RunSpans spans_;
  RunSums<T, kEnding> sums_;
  // Two units at once: one is written while the next is gathered.
  RunCoefficients<P> buffers_[2];
  RunCoefficients<P>* applied_ = &buffers_[0];
  RunCoefficients<P>* gathered_ = &buffers_[1];
  RunCoefficients<P> gradient_;
};

template <typename T, Ending kEnding, bool kStream>
void RunBackwardRuns(const Backward<T>& problem, const simd::NcsPlan& plan, const simd::Sums& sums,
                     int64_t first, int64_t last) {
  const NcsGeometry geometry{problem.shape, problem.groups, plan};
  BackwardRuns<T, kEnding, kStream> pass(problem, geometry, sums);
  if (problem.dx == nullptr && problem.dresidual == nullptr) {
    GatherOnly(pass, geometry, first, last);
  } else {
    RunPipeline(pass, geometry, first, last);
  }
}

template <typename T>
HWY_INLINE void BackwardNcsRuns(const Backward<T>& problem, const simd::NcsPlan& plan, const simd::Sums& sums,
                                int64_t first, int64_t last) {
  ForEnding(problem, plan.stream, [&](auto ending, auto stream) {
    RunBackwardRuns<T, decltype(ending)::value, decltype(stream)::value>(problem, plan, sums, first, last);
  });
}

#define RENORM_DEFINE(T)                                                                                  \
  void BackwardNcsRuns_##T(const Backward<T>& problem, const simd::NcsPlan& plan, const simd::Sums& sums, \
                           int64_t first, int64_t last) {                                                 \
    BackwardNcsRuns(problem, plan, sums, first, last);                                                    \
  }
RENORM_DEFINE(float)
RENORM_DEFINE(double)
RENORM_DEFINE(BFloat16)
#undef RENORM_DEFINE

}  // namespace HWY_NAMESPACE
}  // namespace renorm::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace renorm::kernels {

#define RENORM_EXPORT(T)                                                                          \
  HWY_EXPORT(BackwardNcsRuns_##T);                                                                \
  void simd::backward_ncs_runs(const Backward<T>& problem, const NcsPlan& plan, const Sums& sums, \
                               int64_t first, int64_t last) {                                     \
    HWY_DYNAMIC_DISPATCH(BackwardNcsRuns_##T)(problem, plan, sums, first, last);                  \
  }
RENORM_EXPORT(float)
RENORM_EXPORT(double)
RENORM_EXPORT(BFloat16)
#undef RENORM_EXPORT

}  // namespace renorm::kernels
#endif  // HWY_ONCE
