// Channels-first backward.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/ncs_backward.cpp"
#include "kernels/simd/targets.h"
// targets.h comes first.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <utility>

#include "kernels/simd/ending-inl.h"
#include "kernels/simd/fold-inl.h"
#include "kernels/simd/internal.h"
#include "kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// Sum of dy and of dy * (x - batch_mean) of one channel of one group, in double.
template <typename P>
struct GradientSums {
  LaneSums<P> sums;
  double first;
  double second;

  HWY_INLINE void Start() {
    first = second = 0.0;
    sums.Clear();
  }
  HWY_NOINLINE void Flush() {
    first += SumLanes(sums.first);
    second += SumLanes(sums.second);
    sums.Clear();
  }
};

// Centred input and gradient before the activation, of one row.
template <typename T, Ending kEnding>
struct GradientRow {
  using P = Stat<T>;
  const T* HWY_RESTRICT x;
  const T* HWY_RESTRICT dy;
  MaskBits mask;
  Vec<P> mean;
  Vec<P> scale;
  Vec<P> shift;

  HWY_INLINE GradientRow(const Backward<T>& problem, int64_t row, const simd::Affine<P>& affine, int64_t c)
      : x(problem.x + row),
        dy(problem.dy + row),
        mask(MaskOf(problem).At(row)),
        mean(hn::Set(Tag<P>(), affine.mean[c])) {
    if constexpr (kEnding == Ending::kRelu) {
      scale = hn::Set(Tag<P>(), affine.scale[c]);
      shift = hn::Set(Tag<P>(), affine.shift[c]);
    }
  }
  template <class Load>
  HWY_INLINE Vec<P> Masked(int64_t i, Vec<P> centred, const Load& load) const {
    return Mask<kEnding, P>(centred, scale, shift, LoadMask<kEnding>(mask, i), load(dy + i));
  }
};

template <typename T, Ending kEnding>
struct GatherGradient : GradientRow<T, kEnding> {
  using P = Stat<T>;
  using Row = GradientRow<T, kEnding>;
  static constexpr bool kActive = true;
  GradientSums<P>& total;
  int64_t next;  // as in the forward
  VectorSums<P> sums;

  HWY_INLINE GatherGradient(const Row& row, GradientSums<P>& to, int64_t to_next = kAhead<T>)
      : Row(row), total(to), next(to_next) {}
  HWY_INLINE void Fetch(int64_t i, int64_t n) const {
    PrefetchValues(this->x + i, n, next);
    PrefetchValues(this->dy + i, n, next);
  }
  HWY_INLINE void FetchEnds(int64_t i, int64_t n) const {
    PrefetchEnds(this->x + i, n, next);
    PrefetchEnds(this->dy + i, n, next);
  }
  HWY_INLINE void Begin() { sums.Clear(); }
  HWY_INLINE void Add(Vec<P> centred, Vec<P> gradient, int k) {
    sums.a[k] = hn::Add(sums.a[k], gradient);
    sums.b[k] = hn::MulAdd(gradient, centred, sums.b[k]);
  }
  HWY_INLINE void Step(int64_t i, int k) {
    const Vec<P> centred = hn::Sub(LoadData(this->x + i), this->mean);
    Add(centred, this->Masked(i, centred, [](const T* p) HWY_ATTR { return LoadData(p); }), k);
  }
  HWY_INLINE void StepN(int64_t i, int64_t n) {
    const Vec<P> centred = KeepN<P>(hn::Sub(LoadN(this->x + i, n), this->mean), n);
    Add(centred, this->Masked(i, centred, [n](const T* p) HWY_ATTR { return LoadN(p, n); }), 1);
  }
  HWY_INLINE void StepRest(int64_t i, int64_t done) {
    const Vec<P> centred = hn::Sub(LoadData(this->x + i), this->mean);
    const Vec<P> gradient = this->Masked(i, centred, [](const T* p) HWY_ATTR { return LoadData(p); });
    Add(DropN<P>(centred, done), DropN<P>(gradient, done), 1);
  }
  HWY_INLINE void End(int64_t values) {
    sums.AddTo(total.sums, values);
    if (total.sums.count >= kChunk) total.Flush();
  }
};

// Writes dx; with a residual dx and dresidual, either of which may be null.
template <typename T, Ending kEnding, bool kStream>
struct ApplyGradient : GradientRow<T, kEnding> {
  using P = Stat<T>;
  using Row = GradientRow<T, kEnding>;
  static constexpr bool kActive = true;
  static constexpr bool kStreams = kStream;
  static constexpr int64_t kLine = kValuesPerLine<T>;
  T* HWY_RESTRICT dx;
  T* HWY_RESTRICT dresidual;
  Vec<P> outer_scale;
  Vec<P> slope;
  Vec<P> offset;
  int64_t next;  // as in the forward

  HWY_INLINE ApplyGradient(const Row& row, const Backward<T>& problem, int64_t at,
                           const simd::Gradient<P>& gradient, int64_t c, int64_t to_next = 0)
      : Row(row),
        dx(problem.dx == nullptr ? nullptr : problem.dx + at),
        dresidual(problem.dresidual == nullptr ? nullptr : problem.dresidual + at),
        outer_scale(hn::Set(Tag<P>(), gradient.scale[c])),
        slope(hn::Set(Tag<P>(), gradient.slope[c])),
        offset(hn::Set(Tag<P>(), gradient.shift[c])),
        next(to_next) {
    const int64_t s = problem.shape.s;
    if (kStream && next != 0 && dx != nullptr) PrefetchEnds(dx, s, next);
    if (kStream && next != 0 && dresidual != nullptr) PrefetchEnds(dresidual, s, next);
  }
  template <class Load, class Put>
  HWY_INLINE void At(int64_t i, const Load& load, const Put& put) const {
    const Vec<P> centred = hn::Sub(load(this->x + i), this->mean);
    const Vec<P> masked = this->Masked(i, centred, load);
    const Vec<P> pull = hn::MulAdd(centred, slope, offset);
    if constexpr (kEnding == Ending::kResidual) {
      if (dresidual != nullptr) put(masked, dresidual + i);
      if (dx == nullptr) return;
    }
    put(hn::Mul(outer_scale, hn::Add(masked, pull)), dx + i);
  }
  HWY_INLINE void Fetch(int64_t i, int64_t n) const {
    if (kStream || next == 0) return;
    if (dx != nullptr) PrefetchValues(dx + i, n, next);
    if (kEnding == Ending::kResidual && dresidual != nullptr) PrefetchValues(dresidual + i, n, next);
  }
  HWY_INLINE int64_t Head(int64_t s) const {
    return kStream ? ElementsToLine(dx != nullptr ? dx : dresidual, s) : 0;
  }
  HWY_INLINE void Step(int64_t i) {
    At(
        i, [](const T* p) HWY_ATTR { return LoadData(p); }, [](Vec<P> v, T* p) HWY_ATTR { Store(v, p); });
  }
  HWY_INLINE void StepN(int64_t i, int64_t n) {
    At(
        i, [n](const T* p) HWY_ATTR { return LoadN(p, n); },
        [n](Vec<P> v, T* p) HWY_ATTR { StoreN(v, p, n); });
  }
  HWY_INLINE void StreamStep(int64_t i) {
    At(
        i, [](const T* p) HWY_ATTR { return LoadData(p); },
        [](Vec<P> v, T* p) HWY_ATTR { kStream ? Stream(v, p) : Store(v, p); });
  }
};

template <typename T, Ending kEnding, bool kStream>
struct BackwardPass {
  using P = Stat<T>;
  // Coefficients of one unit. Two units at once: one is written while the next is gathered.
  struct Coefficients {
    P mean[simd::kMaxBlock];
    P scale[simd::kMaxBlock];
    P shift[simd::kMaxBlock];
    simd::Affine<P> affine() { return {mean, scale, shift}; }
  };
  const Backward<T>& problem;
  const NcsGeometry& geometry;
  simd::Sums out;
  GradientSums<P> sums[simd::kMaxBlock];
  Coefficients buffers[2];
  Coefficients* applied = &buffers[0];
  Coefficients* gathered = &buffers[1];
  P outer_scale[simd::kMaxBlock];
  P slope[simd::kMaxBlock];
  P offset[simd::kMaxBlock];

  BackwardPass(const Backward<T>& p, const NcsGeometry& g, const simd::Sums& to)
      : problem(p), geometry(g), out(to) {}

  HWY_INLINE void Start(const NcsUnit& unit) {
    AffineOf<T>(problem, unit.group, unit.first, unit.first + unit.width, gathered->affine());
    for (int64_t j = 0; j < unit.width; ++j) sums[j].Start();
  }
  HWY_INLINE void Run(const NcsUnit* current, const NcsUnit* next, bool reverse) {
    geometry.plan.single ? ForSingleUnits<P>(*this, geometry, current, next, reverse)
                         : ForUnits<P>(*this, geometry, current, next, reverse);
  }
  HWY_INLINE void Fold(const NcsUnit& unit) {
    const int64_t row = unit.group * geometry.shape.c + unit.first;
    for (int64_t j = 0; j < unit.width; ++j) {
      sums[j].Flush();
      out.first[row + j] = sums[j].first;
      out.second[row + j] = sums[j].second;
    }
    const double count = static_cast<double>(geometry.groups.size * geometry.shape.s);
    FoldBackward<T>(problem, unit.group, unit.first, unit.first + unit.width, count, out.first + row,
                    out.second + row, {outer_scale, slope, offset});
    std::swap(applied, gathered);
  }
  HWY_INLINE GatherGradient<T, kEnding> Gatherer(int64_t row, int64_t j, int64_t next) {
    return {{problem, row, gathered->affine(), j}, sums[j], next};
  }
  HWY_INLINE ApplyGradient<T, kEnding, kStream> Applier(int64_t row, int64_t j, int64_t next) {
    return {{problem, row, applied->affine(), j}, problem, row, {outer_scale, slope, offset}, j, next};
  }
  // The same with copies of all members, which the compiler keeps in registers.
  HWY_INLINE auto Gatherers() {
    return [own = problem, affine = gathered->affine(), to = &sums[0]](int64_t row, int64_t j, int64_t next)
               RENORM_INLINE_LAMBDA {
                 return GatherGradient<T, kEnding>({own, row, affine, j}, to[j], next);
               };
  }
  HWY_INLINE auto Appliers() {
    return
        [own = problem, affine = applied->affine(), gradient = simd::Gradient<P>{outer_scale, slope, offset}](
            int64_t row, int64_t j, int64_t next) RENORM_INLINE_LAMBDA {
          return ApplyGradient<T, kEnding, kStream>({own, row, affine, j}, own, row, gradient, j, next);
        };
  }
};

template <typename T, Ending kEnding, bool kStream>
void RunBackward(const Backward<T>& problem, const simd::NcsPlan& plan, const simd::Sums& sums, int64_t first,
                 int64_t last) {
  const NcsGeometry geometry{problem.shape, problem.groups, plan};
  BackwardPass<T, kEnding, kStream> pass(problem, geometry, sums);
  if (problem.dx == nullptr && problem.dresidual == nullptr) {
    GatherOnly(pass, geometry, first, last);
  } else {
    RunPipeline(pass, geometry, first, last);
  }
}

template <typename T>
HWY_INLINE void BackwardNcs(const Backward<T>& problem, const simd::NcsPlan& plan, const simd::Sums& sums,
                            int64_t first, int64_t last) {
  ForEnding(problem, plan.stream, [&](auto ending, auto stream) {
    RunBackward<T, decltype(ending)::value, decltype(stream)::value>(problem, plan, sums, first, last);
  });
}

template <typename T, Ending kEnding>
void RunGatherPieces(const Backward<T>& problem, const simd::PiecePlan& plan,
                     const simd::Affine<Stat<T>>& affine, const simd::Sums& sums, int64_t first,
                     int64_t last) {
  const PieceGeometry geometry{problem.shape, problem.groups, plan};
  for (int64_t unit = first; unit < last; ++unit) {
    GradientSums<Stat<T>> total;
    total.Start();
    NoApply none;
    geometry.ForRows(unit, [&](int64_t offset, int64_t length) HWY_ATTR {
      GatherGradient<T, kEnding> gather({problem, offset, affine, unit / plan.pieces}, total);
      ForRow<Stat<T>>(gather, none, length);
    });
    total.Flush();
    sums.first[unit] = total.first;
    sums.second[unit] = total.second;
  }
}

template <typename T>
HWY_INLINE void GatherBackwardPieces(const Backward<T>& problem, const simd::PiecePlan& plan,
                                     const simd::Affine<Stat<T>>& affine, const simd::Sums& sums,
                                     int64_t first, int64_t last) {
  ForEnding(problem, false, [&](auto ending, auto) {
    RunGatherPieces<T, decltype(ending)::value>(problem, plan, affine, sums, first, last);
  });
}

// Adds the pieces of each channel, in order, into sums [groups][c]; then the gradient's coefficients.
template <typename T>
HWY_INLINE void FoldBackwardPieces(const Backward<T>& problem, const simd::PiecePlan& plan,
                                   const simd::Sums& pieces, const simd::Sums& sums,
                                   const simd::Gradient<Stat<T>>& gradient) {
  const int64_t c = problem.shape.c;
  const double count = static_cast<double>(problem.groups.size * problem.shape.s);
  for (int64_t group = 0; group < problem.groups.count; ++group) {
    const int64_t at = group * c;
    for (int64_t channel = at; channel < at + c; ++channel) {
      sums.first[channel] = sums.second[channel] = 0.0;
      for (int64_t unit = channel * plan.pieces; unit < (channel + 1) * plan.pieces; ++unit) {
        sums.first[channel] += pieces.first[unit];
        sums.second[channel] += pieces.second[unit];
      }
    }
    FoldBackward<T>(problem, group, 0, c, count, sums.first + at, sums.second + at,
                    {gradient.scale + at, gradient.slope + at, gradient.shift + at});
  }
}

// Backwards through the units: what the gathering pass read last may still be in cache.
template <typename T, Ending kEnding, bool kStream>
void RunApplyPieces(const Backward<T>& problem, const simd::PiecePlan& plan,
                    const simd::Affine<Stat<T>>& affine, const simd::Gradient<Stat<T>>& gradient,
                    int64_t first, int64_t last) {
  const PieceGeometry geometry{problem.shape, problem.groups, plan};
  NoGather none;
  for (int64_t unit = last; unit-- > first;) {
    const int64_t at = unit / plan.pieces;
    geometry.ForRows(unit, [&](int64_t offset, int64_t length) HWY_ATTR {
      ApplyGradient<T, kEnding, kStream> apply({problem, offset, affine, at}, problem, offset, gradient, at);
      ForRow<Stat<T>>(none, apply, length);
    });
  }
  if (kStream) hwy::FlushStream();
}

template <typename T>
HWY_INLINE void ApplyBackwardPieces(const Backward<T>& problem, const simd::PiecePlan& plan,
                                    const simd::Affine<Stat<T>>& affine,
                                    const simd::Gradient<Stat<T>>& gradient, int64_t first, int64_t last) {
  ForEnding(problem, plan.stream, [&](auto ending, auto stream) {
    RunApplyPieces<T, decltype(ending)::value, decltype(stream)::value>(problem, plan, affine, gradient,
                                                                        first, last);
  });
}

#define RENORM_DEFINE(T)                                                                                     \
  void BackwardNcs_##T(const Backward<T>& problem, const simd::NcsPlan& plan, const simd::Sums& sums,        \
                       int64_t first, int64_t last) {                                                        \
    BackwardNcs(problem, plan, sums, first, last);                                                           \
  }                                                                                                          \
  void GatherBackwardPieces_##T(const Backward<T>& problem, const simd::PiecePlan& plan,                     \
                                const simd::Affine<Stat<T>>& affine, const simd::Sums& sums, int64_t first,  \
                                int64_t last) {                                                              \
    GatherBackwardPieces(problem, plan, affine, sums, first, last);                                          \
  }                                                                                                          \
  void FoldBackwardPieces_##T(const Backward<T>& problem, const simd::PiecePlan& plan,                       \
                              const simd::Sums& pieces, const simd::Sums& sums,                              \
                              const simd::Gradient<Stat<T>>& gradient) {                                     \
    FoldBackwardPieces(problem, plan, pieces, sums, gradient);                                               \
  }                                                                                                          \
  void ApplyBackwardPieces_##T(const Backward<T>& problem, const simd::PiecePlan& plan,                      \
                               const simd::Affine<Stat<T>>& affine, const simd::Gradient<Stat<T>>& gradient, \
                               int64_t first, int64_t last) {                                                \
    ApplyBackwardPieces(problem, plan, affine, gradient, first, last);                                       \
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

#define RENORM_EXPORT(T)                                                                                    \
  HWY_EXPORT(BackwardNcs_##T);                                                                              \
  HWY_EXPORT(GatherBackwardPieces_##T);                                                                     \
  HWY_EXPORT(FoldBackwardPieces_##T);                                                                       \
  HWY_EXPORT(ApplyBackwardPieces_##T);                                                                      \
  void simd::backward_ncs(const Backward<T>& problem, const NcsPlan& plan, const Sums& sums, int64_t first, \
                          int64_t last) {                                                                   \
    HWY_DYNAMIC_DISPATCH(BackwardNcs_##T)(problem, plan, sums, first, last);                                \
  }                                                                                                         \
  void simd::gather_backward_pieces(const Backward<T>& problem, const PiecePlan& plan,                      \
                                    const Affine<Stat<T>>& affine, const Sums& sums, int64_t first,         \
                                    int64_t last) {                                                         \
    HWY_DYNAMIC_DISPATCH(GatherBackwardPieces_##T)(problem, plan, affine, sums, first, last);               \
  }                                                                                                         \
  void simd::fold_backward_pieces(const Backward<T>& problem, const PiecePlan& plan, const Sums& pieces,    \
                                  const Sums& sums, const Gradient<Stat<T>>& gradient) {                    \
    HWY_DYNAMIC_DISPATCH(FoldBackwardPieces_##T)(problem, plan, pieces, sums, gradient);                    \
  }                                                                                                         \
  void simd::apply_backward_pieces(const Backward<T>& problem, const PiecePlan& plan,                       \
                                   const Affine<Stat<T>>& affine, const Gradient<Stat<T>>& gradient,        \
                                   int64_t first, int64_t last) {                                           \
    HWY_DYNAMIC_DISPATCH(ApplyBackwardPieces_##T)(problem, plan, affine, gradient, first, last);            \
  }
RENORM_EXPORT(float)
RENORM_EXPORT(double)
RENORM_EXPORT(BFloat16)
#undef RENORM_EXPORT

}  // namespace renorm::kernels
#endif  // HWY_ONCE
