// Channels-first training forward and inference with short rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/ncs_runs_forward.cpp"
#include "kernels/simd/targets.h"
// targets.h comes first.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <memory>
#include <type_traits>

#include "kernels/simd/ending-inl.h"
#include "kernels/simd/fold-inl.h"
#include "kernels/simd/forward_rows-inl.h"
#include "kernels/simd/internal.h"
#include "kernels/simd/moments-inl.h"
#include "kernels/simd/runs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// The moments of a unit's channels. Sums per value of a run become sums per channel every kChunkRows runs.
template <typename T>
class RunMoments {
  using P = Stat<T>;

 public:
  RunMoments(int64_t block, int64_t s)
      : s_(s),
        channels_(new Moments<P>[static_cast<size_t>(block)]),
        shift_(block * s),
        sum_(block * s),
        squares_(block * s),
        channel_shift_(block) {}

  HWY_INLINE void Start(const T* x, const Places& places, int64_t width) {
    width_ = width;
    runs_ = 0;
    head_ = std::min(HeadOf(x + places.unit), width * s_);
    for (int64_t j = 0; j < width; ++j) channels_[j].Start(x + j * s_, places);
  }

  HWY_NOINLINE void Add(const T* x, int64_t stride, int64_t runs) {
    if (runs_ == 0) ExpandShift();
    if (runs == kRowsAtOnce) {
      runs_ == 0 ? AddRuns<kRowsAtOnce, true>(x, stride) : AddRuns<kRowsAtOnce, false>(x, stride);
    } else {
      runs_ == 0 ? AddRuns<1, true>(x, stride) : AddRuns<1, false>(x, stride);
      for (int64_t k = 1; k < runs; ++k) AddRuns<1, false>(x + k * stride, stride);
    }
    runs_ += runs;
    if (runs_ >= kChunkRows) Flush();
  }

  HWY_NOINLINE void Finish(double* mean, double* m2) {
    if (runs_ > 0) Flush();
    for (int64_t j = 0; j < width_; ++j) {
      mean[j] = channels_[j].mean;
      m2[j] = channels_[j].m2;
    }
  }

 private:
  template <int kRows, bool kFirst>
  HWY_INLINE void AddRuns(const T* x, int64_t stride) {
    AddRows<T, kRows, kFirst>(x, stride, width_ * s_, shift_.get(head_), sum_.get(head_), squares_.get(head_),
                              head_);
  }

  HWY_INLINE void ExpandShift() {
    for (int64_t j = 0; j < width_; ++j) channel_shift_.get()[j] = channels_[j].shift;
    Expand(channel_shift_.get(), width_, s_, shift_.get(head_));
  }

  HWY_INLINE void Flush() {
    const double count = static_cast<double>(runs_ * s_);
    for (int64_t j = 0; j < width_; ++j) {
      channels_[j].Merge(count, SumRow(sum_.get(head_) + j * s_, s_),
                         SumRow(squares_.get(head_) + j * s_, s_));
    }
    runs_ = 0;
  }

  int64_t s_;
  int64_t width_ = 0;
  int64_t head_ = 0;
  int64_t runs_ = 0;
  std::unique_ptr<Moments<P>[]> channels_;
  Scratch<P> shift_;
  Scratch<P> sum_;
  Scratch<P> squares_;
  Scratch<P> channel_shift_;
};

// Writes `count` values of problem: Forward<T> or Inference<T>. `next` and `ahead` as in RowOutput.
template <Ending kEnding, bool kStream, class Problem, typename P>
HWY_INLINE void WriteRun(const Problem& problem, int64_t offset, int64_t count, const simd::Affine<P>& affine,
                         int64_t next, int64_t ahead) {
  using T = std::remove_pointer_t<decltype(problem.y)>;
  RowOutput<T, kEnding, kStream> output{problem.x + offset,
                                        kEnding == Ending::kResidual ? problem.residual + offset : nullptr,
                                        problem.y + offset,
                                        affine.mean,
                                        affine.scale,
                                        affine.shift,
                                        FloorOf<P>(problem.activation),
                                        MaskOf(problem, offset),
                                        next,
                                        ahead};
  AlongRow<P>(output, count);
}

template <typename T, Ending kEnding, bool kStream>
class ForwardRuns {
  using P = Stat<T>;

 public:
  ForwardRuns(const Forward<T>& problem, const NcsGeometry& geometry)
      : problem_(problem),
        geometry_(geometry),
        block_(geometry.plan.block),
        s_(geometry.shape.s),
        moments_(block_, s_),
        affine_(block_, s_),
        means_(block_),
        m2s_(block_) {}

  HWY_INLINE void Start(const NcsUnit& unit) {
    moments_.Start(problem_.x, PlacesOf(geometry_, unit), unit.width);
  }
  HWY_INLINE void Run(const NcsUnit* current, const NcsUnit* next, bool reverse) {
    if (current != nullptr) spans_ = turns_.Next(geometry_, *current, next);
    ForUnitRuns(*this, geometry_, current, next, reverse);
  }
  HWY_INLINE void Gather(int64_t offset, int64_t stride, int64_t runs) {
    moments_.Add(problem_.x + offset, stride, runs);
  }
  HWY_INLINE void Fold(const NcsUnit& unit) {
    moments_.Finish(means_.get(), m2s_.get());
    const double count = static_cast<double>(geometry_.groups.size * s_);
    FoldForward<T>(problem_, unit.group, unit.first, unit.first + unit.width, count, means_.get(), m2s_.get(),
                   affine_.Channels());
    affine_.Expand(affine_, unit.width, HeadOf(problem_.y + geometry_.Row(unit, 0, 0)));
  }
  HWY_INLINE void Write(int64_t run, int64_t next) {
    const RunSpans::Span span = spans_.Of(problem_.y + run);
    WriteRun<kEnding, kStream>(problem_, run - span.lead, span.count, affine_.Values(-span.lead), next,
                               spans_.ahead);
  }

 private:
  const Forward<T>& problem_;
  const NcsGeometry& geometry_;
  int64_t block_;
  int64_t s_;
  SpanTurns turns_;
  RunSpans spans_;
  RunMoments<T> moments_;
  RunCoefficients<P> affine_;
  Scratch<double> means_;
  Scratch<double> m2s_;
};

template <typename T, Ending kEnding, bool kStream>
void RunForwardRuns(const Forward<T>& problem, const simd::NcsPlan& plan, int64_t first, int64_t last) {
  const NcsGeometry geometry{problem.shape, problem.groups, plan};
  ForwardRuns<T, kEnding, kStream> pass(problem, geometry);
  RunPipeline(pass, geometry, first, last);
}

template <typename T>
HWY_INLINE void ForwardNcsRuns(const Forward<T>& problem, const simd::NcsPlan& plan, int64_t first,
                               int64_t last) {
  ForEnding(problem, plan.stream, [&](auto ending, auto stream) {
    RunForwardRuns<T, decltype(ending)::value, decltype(stream)::value>(problem, plan, first, last);
  });
}

// Outputs are streamed: data in cache is read faster row by row than with coefficients per value.
template <typename T, Ending kEnding>
void RunInferenceRuns(const Inference<T>& problem, const simd::NcsPlan& plan,
                      const simd::Affine<Stat<T>>& affine, int64_t first, int64_t last) {
  using P = Stat<T>;
  const Shape& shape = problem.shape;
  const NcsGeometry geometry{shape, contiguous_groups(shape.n, shape.n), plan};
  const int64_t stride = shape.c * shape.s;
  RunCoefficients<P> run_affine(plan.block, shape.s);
  SpanTurns turns;
  for (int64_t index = first; index < last; ++index) {
    const NcsUnit unit = geometry.Unit(index);
    const NcsUnit after = geometry.Unit(index + 1);
    const RunSpans spans = turns.Next(geometry, unit, index + 1 < last ? &after : nullptr);
    const int64_t start = geometry.Row(unit, 0, 0);
    const simd::Affine<P> channels = run_affine.Channels();
    std::copy_n(affine.mean + unit.first, unit.width, channels.mean);
    std::copy_n(affine.scale + unit.first, unit.width, channels.scale);
    std::copy_n(affine.shift + unit.first, unit.width, channels.shift);
    run_affine.Expand(run_affine, unit.width, HeadOf(problem.y + start));
    for (int64_t run = start; run < start + shape.n * stride; run += stride) {
      const RunSpans::Span span = spans.Of(problem.y + run);
      WriteRun<kEnding, /*kStream=*/true>(problem, run - span.lead, span.count, run_affine.Values(-span.lead),
                                          stride, spans.ahead);
    }
  }
  hwy::FlushStream();
}

template <typename T>
HWY_INLINE void InferenceNcsRuns(const Inference<T>& problem, const simd::NcsPlan& plan,
                                 const simd::Affine<Stat<T>>& affine, int64_t first, int64_t last) {
  ForEnding(problem, true, [&](auto ending, auto) {
    RunInferenceRuns<T, decltype(ending)::value>(problem, plan, affine, first, last);
  });
}

#define RENORM_DEFINE(T)                                                                        \
  void ForwardNcsRuns_##T(const Forward<T>& problem, const simd::NcsPlan& plan, int64_t first,  \
                          int64_t last) {                                                       \
    ForwardNcsRuns(problem, plan, first, last);                                                 \
  }                                                                                             \
  void InferenceNcsRuns_##T(const Inference<T>& problem, const simd::NcsPlan& plan,             \
                            const simd::Affine<Stat<T>>& affine, int64_t first, int64_t last) { \
    InferenceNcsRuns(problem, plan, affine, first, last);                                       \
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

#define RENORM_EXPORT(T)                                                                                     \
  HWY_EXPORT(ForwardNcsRuns_##T);                                                                            \
  HWY_EXPORT(InferenceNcsRuns_##T);                                                                          \
  void simd::inference_ncs_runs(const Inference<T>& problem, const NcsPlan& plan,                            \
                                const Affine<Stat<T>>& affine, int64_t first, int64_t last) {                \
    HWY_DYNAMIC_DISPATCH(InferenceNcsRuns_##T)(problem, plan, affine, first, last);                          \
  }                                                                                                          \
  void simd::forward_ncs_runs(const Forward<T>& problem, const NcsPlan& plan, int64_t first, int64_t last) { \
    HWY_DYNAMIC_DISPATCH(ForwardNcsRuns_##T)(problem, plan, first, last);                                    \
  }
RENORM_EXPORT(float)
RENORM_EXPORT(double)
RENORM_EXPORT(BFloat16)
#undef RENORM_EXPORT

}  // namespace renorm::kernels
#endif  // HWY_ONCE
