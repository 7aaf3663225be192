// Channels-first backward.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/ncs_backward.cpp"
#include "kernels/simd/targets.h"
// targets.h comes first.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include <utility>

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
template <typename T, bool kRelu>
struct GradientRow {
  using P = Stat<T>;
  const T* HWY_RESTRICT x;
  const T* HWY_RESTRICT dy;
  Vec<P> mean;
  Vec<P> scale;
  Vec<P> shift;

  HWY_INLINE GradientRow(const T* input, const T* gradient, const simd::Affine<P>& affine, int64_t c)
      : x(input), dy(gradient), mean(hn::Set(Tag<P>(), affine.mean[c])) {
    if constexpr (kRelu) {
      scale = hn::Set(Tag<P>(), affine.scale[c]);
      shift = hn::Set(Tag<P>(), affine.shift[c]);
    }
  }
  // The gradient passes where the output, recomputed as the forward computed it, is not clamped.
  HWY_INLINE Vec<P> Mask(Vec<P> centred, Vec<P> gradient) const {
    if constexpr (kRelu) {
      const auto closed = hn::Le(hn::MulAdd(centred, scale, shift), hn::Zero(Tag<P>()));
      return hn::IfThenZeroElse(closed, gradient);
    }
    return gradient;
  }
  HWY_INLINE void Prefetch(int64_t i, int64_t n) const {
    PrefetchAhead(x + i, n * static_cast<int64_t>(sizeof(T)));
    PrefetchAhead(dy + i, n * static_cast<int64_t>(sizeof(T)));
  }
};

template <typename T, bool kRelu>
struct GatherGradient : GradientRow<T, kRelu> {
  using P = Stat<T>;
  using Row = GradientRow<T, kRelu>;
  static constexpr bool kActive = true;
  GradientSums<P>& total;
  VectorSums<P> sums;

  HWY_INLINE GatherGradient(const Row& row, GradientSums<P>& to) : Row(row), total(to) {}
  HWY_INLINE void Begin() { sums.Clear(); }
  HWY_INLINE void Add(Vec<P> centred, Vec<P> gradient, int k) {
    sums.a[k] = hn::Add(sums.a[k], gradient);
    sums.b[k] = hn::MulAdd(gradient, centred, sums.b[k]);
  }
  HWY_INLINE void Step(int64_t i, int k) {
    const Vec<P> centred = hn::Sub(Load(this->x + i), this->mean);
    Add(centred, this->Mask(centred, Load(this->dy + i)), k);
  }
  HWY_INLINE void StepN(int64_t i, int64_t n) {
    const Vec<P> centred = KeepN<P>(hn::Sub(LoadN(this->x + i, n), this->mean), n);
    Add(centred, this->Mask(centred, LoadN(this->dy + i, n)), 1);
  }
  HWY_INLINE void End(int64_t values) {
    sums.AddTo(total.sums, values);
    if (total.sums.count >= kChunk) total.Flush();
  }
};

template <typename T, bool kRelu, bool kStream>
struct ApplyGradient : GradientRow<T, kRelu> {
  using P = Stat<T>;
  using Row = GradientRow<T, kRelu>;
  static constexpr bool kActive = true;
  static constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(T));
  T* HWY_RESTRICT dx;
  Vec<P> outer_scale;
  Vec<P> slope;
  Vec<P> offset;

  HWY_INLINE ApplyGradient(const Row& row, T* to, const simd::Gradient<P>& gradient, int64_t c)
      : Row(row),
        dx(to),
        outer_scale(hn::Set(Tag<P>(), gradient.scale[c])),
        slope(hn::Set(Tag<P>(), gradient.slope[c])),
        offset(hn::Set(Tag<P>(), gradient.shift[c])) {}
  HWY_INLINE Vec<P> Of(Vec<P> input, Vec<P> gradient) const {
    const Vec<P> centred = hn::Sub(input, this->mean);
    const Vec<P> pull = hn::MulAdd(centred, slope, offset);
    return hn::Mul(outer_scale, hn::Add(this->Mask(centred, gradient), pull));
  }
  HWY_INLINE int64_t Head(int64_t s) const { return kStream ? ElementsToLine(dx, s) : 0; }
  HWY_INLINE void Step(int64_t i) { Store(Of(Load(this->x + i), Load(this->dy + i)), dx + i); }
  HWY_INLINE void StepN(int64_t i, int64_t n) {
    StoreN(Of(LoadN(this->x + i, n), LoadN(this->dy + i, n)), dx + i, n);
  }
  HWY_INLINE void StreamStep(int64_t i) {
    if constexpr (kStream) {
      Stream(Of(Load(this->x + i), Load(this->dy + i)), dx + i);
    } else {
      Step(i);
    }
  }
};

template <typename T, bool kRelu, bool kStream>
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
  HWY_INLINE GatherGradient<T, kRelu> Gatherer(int64_t row, int64_t j) {
    return {{problem.x + row, problem.dy + row, gathered->affine(), j}, sums[j]};
  }
  HWY_INLINE ApplyGradient<T, kRelu, kStream> Applier(int64_t row, int64_t j) {
    return {{problem.x + row, problem.dy + row, applied->affine(), j},
            problem.dx + row,
            {outer_scale, slope, offset},
            j};
  }
};

// Without dx units are only gathered, not written.
template <typename P, class Pass>
void GatherOnly(Pass& pass, const NcsGeometry& geometry, int64_t first, int64_t last) {
  for (int64_t index = first; index < last; ++index) {
    const NcsUnit unit = geometry.Unit(index);
    pass.Start(unit);
    ForUnits<P>(pass, geometry, nullptr, &unit, GatheredBackwards(index));
    pass.Fold(unit);
  }
}

template <typename T, bool kRelu, bool kStream>
void RunBackward(const Backward<T>& problem, const simd::NcsPlan& plan, const simd::Sums& sums, int64_t first,
                 int64_t last) {
  const NcsGeometry geometry{problem.shape, problem.groups, plan};
  BackwardPass<T, kRelu, kStream> pass(problem, geometry, sums);
  if (problem.dx == nullptr) {
    GatherOnly<Stat<T>>(pass, geometry, first, last);
  } else {
    RunPipeline<Stat<T>>(pass, geometry, first, last);
  }
}

template <typename T>
HWY_INLINE void BackwardNcs(const Backward<T>& problem, const simd::NcsPlan& plan, const simd::Sums& sums,
                            int64_t first, int64_t last) {
  const bool relu = problem.activation == Activation::kRelu;
  if (relu) {
    plan.stream ? RunBackward<T, true, true>(problem, plan, sums, first, last)
                : RunBackward<T, true, false>(problem, plan, sums, first, last);
  } else {
    plan.stream ? RunBackward<T, false, true>(problem, plan, sums, first, last)
                : RunBackward<T, false, false>(problem, plan, sums, first, last);
  }
}

#define RENORM_DEFINE(T)                                                                              \
  void BackwardNcs_##T(const Backward<T>& problem, const simd::NcsPlan& plan, const simd::Sums& sums, \
                       int64_t first, int64_t last) {                                                 \
    BackwardNcs(problem, plan, sums, first, last);                                                    \
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
  void simd::backward_ncs(const Backward<T>& problem, const NcsPlan& plan, const Sums& sums, int64_t first, \
                          int64_t last) {                                                                   \
    HWY_DYNAMIC_DISPATCH(BackwardNcs_##T)(problem, plan, sums, first, last);                                \
  }
RENORM_EXPORT(float)
RENORM_EXPORT(double)
RENORM_EXPORT(BFloat16)
#undef RENORM_EXPORT

}  // namespace renorm::kernels
#endif  // HWY_ONCE
