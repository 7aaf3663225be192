// Channels-first training forward and inference.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/ncs_forward.cpp"
#include "kernels/simd/targets.h"
// targets.h comes first.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/simd/ending-inl.h"
#include "kernels/simd/fold-inl.h"
#include "kernels/simd/internal.h"
#include "kernels/simd/moments-inl.h"
#include "kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// The moments of one channel of one group and the sums of its current chunk.
template <typename P>
struct LaneMoments {
  Moments<P> moments;
  LaneSums<P> sums;

  HWY_NOINLINE void Flush() {
    if (sums.count == 0) return;
    moments.Merge(static_cast<double>(sums.count), SumLanes(sums.first), SumLanes(sums.second));
    sums.Clear();
  }
};

template <typename T>
struct GatherMoments {
  using P = Stat<T>;
  static constexpr bool kActive = true;
  const T* HWY_RESTRICT x;
  LaneMoments<P>& total;
  int64_t next;  // from this row to the one gathered next, or to later values of this one
  Vec<P> shift;
  VectorSums<P> sums;

  HWY_INLINE GatherMoments(const T* row, LaneMoments<P>& to, int64_t to_next = kAhead<T>)
      : x(row), total(to), next(to_next) {}
  HWY_INLINE void Begin() {
    shift = hn::Set(Tag<P>(), total.moments.shift);
    sums.Clear();
  }
  HWY_INLINE void Add(Vec<P> v, int k) {
    sums.a[k] = hn::Add(sums.a[k], v);
    sums.b[k] = hn::MulAdd(v, v, sums.b[k]);
  }
  HWY_INLINE void Step(int64_t i, int k) { Add(hn::Sub(LoadData(x + i), shift), k); }
  HWY_INLINE void StepN(int64_t i, int64_t n) { Add(KeepN<P>(hn::Sub(LoadN(x + i, n), shift), n), 1); }
  HWY_INLINE void StepRest(int64_t i, int64_t done) {
    Add(DropN<P>(hn::Sub(LoadData(x + i), shift), done), 1);
  }
  HWY_INLINE void Fetch(int64_t i, int64_t n) const { PrefetchValues(x + i, n, next); }
  HWY_INLINE void FetchEnds(int64_t i, int64_t n) const { PrefetchEnds(x + i, n, next); }
  HWY_INLINE void End(int64_t values) {
    sums.AddTo(total.sums, values);
    if (total.sums.count >= kChunk) total.Flush();
  }
};

// One row of the output of problem: Forward<T> or Inference<T>.
template <typename T, Ending kEnding, bool kStream>
struct ApplyAffine {
  using P = Stat<T>;
  static constexpr bool kActive = true;
  static constexpr bool kStreams = kStream;
  static constexpr int64_t kLine = kValuesPerLine<T>;
  const T* HWY_RESTRICT x;
  const T* HWY_RESTRICT residual;
  T* HWY_RESTRICT y;
  MaskOutput mask;
  Vec<P> mean;
  Vec<P> scale;
  Vec<P> shift;
  Vec<P> floor;
  int64_t next;  // from this row to the one written next, 0: not known

  template <class Problem>
  HWY_INLINE ApplyAffine(const Problem& problem, int64_t row, const simd::Affine<P>& affine, int64_t c,
                         int64_t to_next = 0)
      : x(problem.x + row),
        y(problem.y + row),
        mask(MaskOf(problem, row)),
        mean(hn::Set(Tag<P>(), affine.mean[c])),
        scale(hn::Set(Tag<P>(), affine.scale[c])),
        shift(hn::Set(Tag<P>(), affine.shift[c])),
        floor(FloorOf<P>(problem.activation)),
        next(to_next) {
    if (kStream && next != 0) PrefetchEnds(y, problem.shape.s, next);
    if constexpr (kEnding == Ending::kResidual) {
      residual = problem.residual + row;
      if (next != 0) PrefetchEnds(residual, problem.shape.s, next);
    }
  }
  template <class Load>
  HWY_INLINE Output<P> At(int64_t i, const Load& load) const {
    const Vec<P> added = LoadResidual<kEnding>(residual, i, load);
    return Finish<kEnding, P>(hn::Sub(load(x + i), mean), scale, shift, added, floor);
  }
  HWY_INLINE Output<P> At(int64_t i) const {
    return At(i, [](const T* p) HWY_ATTR { return LoadData(p); });
  }
  // The residual is read for the first time here, x for the second.
  HWY_INLINE void Fetch(int64_t i, int64_t n) const {
    if constexpr (kEnding == Ending::kResidual) PrefetchValues(residual + i, n, next != 0 ? next : kAhead<T>);
    if (!kStream && next != 0) PrefetchValues(y + i, n, next);
  }
  // With a mask a row starts at a cache line, so that vectors fill whole bytes.
  HWY_INLINE int64_t Head(int64_t s) const {
    return kStream || HasMask<kEnding>(mask) ? ElementsToLine(y, s) : 0;
  }
  HWY_INLINE void Step(int64_t i) {
    const Output<P> output = At(i);
    Store(output.value, y + i);
    StoreMask<kEnding, P>(mask, output, i, Lanes<P>());
  }
  HWY_INLINE void StepN(int64_t i, int64_t n) {
    const Output<P> output = At(i, [n](const T* p) HWY_ATTR { return LoadN(p, n); });
    StoreN(output.value, y + i, n);
    StoreMask<kEnding, P>(mask, output, i, n);
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
};

template <typename T, Ending kEnding, bool kStream>
struct ForwardPass {
  using P = Stat<T>;
  const Forward<T>& problem;
  const NcsGeometry& geometry;
  LaneMoments<P> channels[simd::kMaxBlock];
  P mean[simd::kMaxBlock];
  P scale[simd::kMaxBlock];
  P shift[simd::kMaxBlock];

  ForwardPass(const Forward<T>& p, const NcsGeometry& g) : problem(p), geometry(g) {}

  HWY_INLINE void Start(const NcsUnit& unit) {
    const Places places = PlacesOf(geometry, unit);
    for (int64_t j = 0; j < unit.width; ++j) {
      channels[j].moments.Start(problem.x + j * geometry.shape.s, places);
      channels[j].sums.Clear();
    }
  }
  HWY_INLINE void Run(const NcsUnit* current, const NcsUnit* next, bool reverse) {
    geometry.plan.single ? ForSingleUnits<P>(*this, geometry, current, next, reverse)
                         : ForUnits<P>(*this, geometry, current, next, reverse);
  }
  HWY_INLINE void Fold(const NcsUnit& unit) {
    double means[simd::kMaxBlock];
    double m2s[simd::kMaxBlock];
    for (int64_t j = 0; j < unit.width; ++j) {
      channels[j].Flush();
      means[j] = channels[j].moments.mean;
      m2s[j] = channels[j].moments.m2;
    }
    const double count = static_cast<double>(geometry.groups.size * geometry.shape.s);
    FoldForward<T>(problem, unit.group, unit.first, unit.first + unit.width, count, means, m2s,
                   {mean, scale, shift});
  }
  HWY_INLINE GatherMoments<T> Gatherer(int64_t row, int64_t j, int64_t next) {
    return {problem.x + row, channels[j], next};
  }
  HWY_INLINE ApplyAffine<T, kEnding, kStream> Applier(int64_t row, int64_t j, int64_t next) {
    return {problem, row, {mean, scale, shift}, j, next};
  }
  // The same with copies of all members, which the compiler keeps in registers.
  HWY_INLINE auto Gatherers() {
    return [x = problem.x, to = &channels[0]](int64_t row, int64_t j, int64_t next)
               RENORM_INLINE_LAMBDA { return GatherMoments<T>(x + row, to[j], next); };
  }
  HWY_INLINE auto Appliers() {
    return [own = problem, affine = simd::Affine<P>{mean, scale, shift}](int64_t row, int64_t j, int64_t next)
               RENORM_INLINE_LAMBDA { return ApplyAffine<T, kEnding, kStream>(own, row, affine, j, next); };
  }
};

template <typename T, Ending kEnding, bool kStream>
void RunForward(const Forward<T>& problem, const simd::NcsPlan& plan, int64_t first, int64_t last) {
  const NcsGeometry geometry{problem.shape, problem.groups, plan};
  ForwardPass<T, kEnding, kStream> pass(problem, geometry);
  RunPipeline(pass, geometry, first, last);
}

template <typename T>
HWY_INLINE void ForwardNcs(const Forward<T>& problem, const simd::NcsPlan& plan, int64_t first,
                           int64_t last) {
  ForEnding(problem, plan.stream, [&](auto ending, auto stream) {
    RunForward<T, decltype(ending)::value, decltype(stream)::value>(problem, plan, first, last);
  });
}

template <typename T>
HWY_INLINE void GatherPieces(const Forward<T>& problem, const simd::PiecePlan& plan, const simd::Sums& sums,
                             int64_t first, int64_t last) {
  const PieceGeometry geometry{problem.shape, problem.groups, plan};
  const NcsGeometry channels{problem.shape, problem.groups, {1, problem.shape.c, 0, false, false, false}};
  for (int64_t unit = first; unit < last; ++unit) {
    LaneMoments<Stat<T>> moments;
    moments.moments.Start(problem.x,
                          PlacesOf(channels, {geometry.Group(unit), geometry.Channel(unit), /*width=*/1}));
    moments.sums.Clear();
    NoApply none;
    geometry.ForRows(unit, [&](int64_t offset, int64_t length) HWY_ATTR {
      GatherMoments<T> gather(problem.x + offset, moments);
      ForRow<Stat<T>>(gather, none, length);
    });
    moments.Flush();
    sums.first[unit] = moments.moments.mean;
    sums.second[unit] = moments.moments.m2;
  }
}

// Merges the pieces of each channel, in order, into the first of them; then statistics and coefficients.
template <typename T>
HWY_INLINE void FoldPieces(const Forward<T>& problem, const simd::PiecePlan& plan, const simd::Sums& sums,
                           const simd::Affine<Stat<T>>& affine) {
  const PieceGeometry geometry{problem.shape, problem.groups, plan};
  const int64_t c = problem.shape.c;
  for (int64_t at = 0; at < problem.groups.count * c; ++at) {
    const int64_t unit0 = at * plan.pieces;
    double mean = sums.first[unit0];
    double m2 = sums.second[unit0];
    double count = static_cast<double>(geometry.Last(unit0));
    for (int64_t unit = unit0 + 1; unit < unit0 + plan.pieces; ++unit) {
      const double values = static_cast<double>(geometry.Last(unit) - geometry.First(unit));
      const double share = values / (count + values);
      const double delta = sums.first[unit] - mean;
      mean += delta * share;
      m2 += sums.second[unit] + delta * delta * (count * share);
      count += values;
    }
    FoldForward<T>(problem, at / c, at % c, at % c + 1, count, &mean, &m2,
                   {affine.mean + at, affine.scale + at, affine.shift + at});
  }
}

// Backwards through the units: what the gathering pass read last may still be in cache.
template <typename T, Ending kEnding, bool kStream>
void RunApplyPieces(const Forward<T>& problem, const simd::PiecePlan& plan,
                    const simd::Affine<Stat<T>>& affine, int64_t first, int64_t last) {
  const PieceGeometry geometry{problem.shape, problem.groups, plan};
  NoGather none;
  for (int64_t unit = last; unit-- > first;) {
    geometry.ForRows(unit, [&](int64_t offset, int64_t length) HWY_ATTR {
      ApplyAffine<T, kEnding, kStream> apply(problem, offset, affine, unit / plan.pieces);
      ForRow<Stat<T>>(none, apply, length);
    });
  }
  if (kStream) hwy::FlushStream();
}

template <typename T>
HWY_INLINE void ApplyPieces(const Forward<T>& problem, const simd::PiecePlan& plan,
                            const simd::Affine<Stat<T>>& affine, int64_t first, int64_t last) {
  ForEnding(problem, plan.stream, [&](auto ending, auto stream) {
    RunApplyPieces<T, decltype(ending)::value, decltype(stream)::value>(problem, plan, affine, first, last);
  });
}

// A unit is one row of one channel of one example.
template <typename T, Ending kEnding, bool kStream>
void RunInference(const Inference<T>& problem, const simd::Affine<Stat<T>>& affine, int64_t first,
                  int64_t last) {
  NoGather none;
  for (int64_t row = first; row < last; ++row) {
    ApplyAffine<T, kEnding, kStream> apply(problem, row * problem.shape.s, affine, row % problem.shape.c);
    ForRow<Stat<T>>(none, apply, problem.shape.s);
  }
  if (kStream) hwy::FlushStream();
}

template <typename T>
HWY_INLINE void InferenceNcs(const Inference<T>& problem, const simd::Affine<Stat<T>>& affine, bool stream,
                             int64_t first, int64_t last) {
  ForEnding(problem, stream, [&](auto ending, auto streams) {
    RunInference<T, decltype(ending)::value, decltype(streams)::value>(problem, affine, first, last);
  });
}

#define RENORM_DEFINE(T)                                                                                   \
  void ForwardNcs_##T(const Forward<T>& problem, const simd::NcsPlan& plan, int64_t first, int64_t last) { \
    ForwardNcs(problem, plan, first, last);                                                                \
  }                                                                                                        \
  void GatherPieces_##T(const Forward<T>& problem, const simd::PiecePlan& plan, const simd::Sums& sums,    \
                        int64_t first, int64_t last) {                                                     \
    GatherPieces(problem, plan, sums, first, last);                                                        \
  }                                                                                                        \
  void FoldPieces_##T(const Forward<T>& problem, const simd::PiecePlan& plan, const simd::Sums& sums,      \
                      const simd::Affine<Stat<T>>& affine) {                                               \
    FoldPieces(problem, plan, sums, affine);                                                               \
  }                                                                                                        \
  void ApplyPieces_##T(const Forward<T>& problem, const simd::PiecePlan& plan,                             \
                       const simd::Affine<Stat<T>>& affine, int64_t first, int64_t last) {                 \
    ApplyPieces(problem, plan, affine, first, last);                                                       \
  }                                                                                                        \
  void InferenceNcs_##T(const Inference<T>& problem, const simd::Affine<Stat<T>>& affine, bool stream,     \
                        int64_t first, int64_t last) {                                                     \
    InferenceNcs(problem, affine, stream, first, last);                                                    \
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

#define RENORM_EXPORT(T)                                                                                   \
  HWY_EXPORT(ForwardNcs_##T);                                                                              \
  HWY_EXPORT(GatherPieces_##T);                                                                            \
  HWY_EXPORT(FoldPieces_##T);                                                                              \
  HWY_EXPORT(ApplyPieces_##T);                                                                             \
  HWY_EXPORT(InferenceNcs_##T);                                                                            \
  void simd::forward_ncs(const Forward<T>& problem, const NcsPlan& plan, int64_t first, int64_t last) {    \
    HWY_DYNAMIC_DISPATCH(ForwardNcs_##T)(problem, plan, first, last);                                      \
  }                                                                                                        \
  void simd::gather_pieces(const Forward<T>& problem, const PiecePlan& plan, const Sums& sums,             \
                           int64_t first, int64_t last) {                                                  \
    HWY_DYNAMIC_DISPATCH(GatherPieces_##T)(problem, plan, sums, first, last);                              \
  }                                                                                                        \
  void simd::fold_pieces(const Forward<T>& problem, const PiecePlan& plan, const Sums& sums,               \
                         const Affine<Stat<T>>& affine) {                                                  \
    HWY_DYNAMIC_DISPATCH(FoldPieces_##T)(problem, plan, sums, affine);                                     \
  }                                                                                                        \
  void simd::apply_pieces(const Forward<T>& problem, const PiecePlan& plan, const Affine<Stat<T>>& affine, \
                          int64_t first, int64_t last) {                                                   \
    HWY_DYNAMIC_DISPATCH(ApplyPieces_##T)(problem, plan, affine, first, last);                             \
  }                                                                                                        \
  void simd::inference_ncs(const Inference<T>& problem, const Affine<Stat<T>>& affine, bool stream,        \
                           int64_t first, int64_t last) {                                                  \
    HWY_DYNAMIC_DISPATCH(InferenceNcs_##T)(problem, affine, stream, first, last);                          \
  }
RENORM_EXPORT(float)
RENORM_EXPORT(double)
RENORM_EXPORT(BFloat16)
#undef RENORM_EXPORT

}  // namespace renorm::kernels
#endif  // HWY_ONCE
