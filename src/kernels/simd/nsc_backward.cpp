// Channels-last backward: sequential passes over rows, with the sums of all channels in the innermost cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/nsc_backward.cpp"
#include "kernels/simd/targets.h"
// targets.h comes first.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/simd/ending-inl.h"
#include "kernels/simd/fold-inl.h"
#include "kernels/simd/internal.h"
#include "kernels/simd/nsc-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// The data of rows that are read together: the same offsets in each array. residual is null without one.
template <typename T>
struct GradientData {
  const T* HWY_RESTRICT x;
  const T* HWY_RESTRICT dy;
  const T* HWY_RESTRICT residual;

  HWY_INLINE GradientData At(int64_t offset) const {
    return {x + offset, dy + offset, residual == nullptr ? nullptr : residual + offset};
  }
};

// sum += dy and products += dy * (x - mean) over kRows rows; kFirst: sums start here.
template <typename T, Ending kEnding, int kRows, bool kFirst>
HWY_INLINE void AddRows(const GradientData<T>& data, int64_t stride, int64_t c,
                        const simd::Affine<Stat<T>>& affine, Stat<T>* HWY_RESTRICT sum,
                        Stat<T>* HWY_RESTRICT products) {
  using P = Stat<T>;
  constexpr bool kMasked = kEnding != Ending::kPlain;
  const int64_t lanes = Lanes<P>();
  const auto step = [&](int64_t i, auto&& load, auto&& load_parameter) HWY_ATTR {
    const Vec<P> mean = load_parameter(affine.mean + i);
    const Vec<P> scale = kMasked ? load_parameter(affine.scale + i) : mean;
    const Vec<P> shift = kMasked ? load_parameter(affine.shift + i) : mean;
    Vec<P> a = kFirst ? hn::Zero(Tag<P>()) : Load(sum + i);
    Vec<P> b = kFirst ? hn::Zero(Tag<P>()) : Load(products + i);
    for (int k = 0; k < kRows; ++k) {
      const int64_t at = k * stride + i;
      const Vec<P> centred = hn::Sub(load(data.x + at), mean);
      const Vec<P> residual = LoadResidual<kEnding>(data.residual + at, load);
      const Vec<P> gradient = Mask<kEnding, P>(centred, scale, shift, residual, load(data.dy + at));
      a = hn::Add(a, gradient);
      b = hn::MulAdd(gradient, centred, b);
    }
    Store(a, sum + i);
    Store(b, products + i);
  };
  const auto prefetch = [&](const T* p, int64_t i) HWY_ATTR {
    for (int k = 0; k < kRows; ++k) {
      hwy::Prefetch(reinterpret_cast<const uint8_t*>(
          reinterpret_cast<uintptr_t>(p) + sizeof(T) * static_cast<uintptr_t>((kRows + k) * stride + i)));
    }
  };
  int64_t i = 0;
  for (; i + lanes <= c; i += lanes) {
    prefetch(data.x, i);
    prefetch(data.dy, i);
    if constexpr (kEnding == Ending::kResidual) prefetch(data.residual, i);
    step(
        i, [](const T* p) HWY_ATTR { return Load(p); }, [](const P* p) HWY_ATTR { return Load(p); });
  }
  if (i < c) {
    step(
        i, [c, i](const T* p) HWY_ATTR { return LoadN(p, c - i); },
        [c, i](const P* p) HWY_ATTR { return LoadN(p, c - i); });
  }
}

// The two sums of all channels over the rows so far.
template <typename T, Ending kEnding>
class RowSums {
  using P = Stat<T>;

 public:
  RowSums(int64_t c, const simd::Affine<P>& affine, double* first, double* second)
      : c_(c), affine_(affine), sum_(c), products_(c), first_(first), second_(second) {
    std::fill(first, first + c, 0.0);
    std::fill(second, second + c, 0.0);
  }

  HWY_INLINE void Add(const GradientData<T>& data, int64_t stride, int64_t rows) {
    for (int64_t row = 0; row < rows; row += kChunkRows) {
      AddChunk(data.At(row * stride), stride, std::min(kChunkRows, rows - row));
    }
  }

 private:
  template <int kRows, bool kFirst>
  HWY_INLINE void Rows(const GradientData<T>& data, int64_t stride, int64_t row) {
    AddRows<T, kEnding, kRows, kFirst>(data.At(row * stride), stride, c_, affine_, sum_.get(),
                                       products_.get());
  }

  HWY_INLINE void AddChunk(const GradientData<T>& data, int64_t stride, int64_t rows) {
    int64_t row = 0;
    if (rows >= kRowsAtOnce) {
      Rows<kRowsAtOnce, true>(data, stride, 0);
      for (row = kRowsAtOnce; row + kRowsAtOnce <= rows; row += kRowsAtOnce) {
        Rows<kRowsAtOnce, false>(data, stride, row);
      }
    } else {
      Rows<1, true>(data, stride, 0);
      row = 1;
    }
    for (; row < rows; ++row) Rows<1, false>(data, stride, row);
    Merge();
  }

  HWY_NOINLINE void Merge() {
    ForChannels<P>(c_, [&](int64_t i, int64_t n) HWY_ATTR {
      StoreWideUpTo<P>(LoadWideUpTo<P>(first_ + i, n) + Widen(Load(sum_.get() + i)), first_ + i, n);
      StoreWideUpTo<P>(LoadWideUpTo<P>(second_ + i, n) + Widen(Load(products_.get() + i)), second_ + i, n);
    });
  }

  int64_t c_;
  simd::Affine<P> affine_;
  Scratch<P> sum_;
  Scratch<P> products_;
  double* first_;
  double* second_;
};

template <typename T, Ending kEnding>
void RunGather(const Backward<T>& problem, const simd::NscPlan& plan, const simd::Affine<Stat<T>>& affine,
               const simd::Sums& sums, int64_t first, int64_t last) {
  const NscGeometry geometry{problem.shape, problem.groups, plan};
  const int64_t c = problem.shape.c;
  const GradientData<T> data{problem.x, problem.dy, problem.residual};
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t at = geometry.Group(unit) * c;
    RowSums<T, kEnding> rows_sums(c, {affine.mean + at, affine.scale + at, affine.shift + at},
                                  sums.first + unit * c, sums.second + unit * c);
    geometry.ForRuns(unit, [&](int64_t offset, int64_t stride, int64_t rows)
                               HWY_ATTR { rows_sums.Add(data.At(offset), stride, rows); });
  }
}

// Writes dx; with a residual dx and dresidual, either of which may be null.
template <typename T, Ending kEnding, bool kStream>
struct RowGradient {
  using P = Stat<T>;
  static constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(T));
  GradientData<T> data;
  T* HWY_RESTRICT dx;
  T* HWY_RESTRICT dresidual;
  simd::Affine<P> affine;
  simd::Gradient<P> gradient;

  template <class Load, class LoadParameter, class Put>
  HWY_INLINE void At(int64_t i, const Load& load, const LoadParameter& parameter, const Put& put) const {
    constexpr bool kMasked = kEnding != Ending::kPlain;
    const Vec<P> mean = parameter(affine.mean + i);
    const Vec<P> centred = hn::Sub(load(data.x + i), mean);
    const Vec<P> scale = kMasked ? parameter(affine.scale + i) : mean;
    const Vec<P> shift = kMasked ? parameter(affine.shift + i) : mean;
    const Vec<P> residual = LoadResidual<kEnding>(data.residual + i, load);
    const Vec<P> masked = Mask<kEnding, P>(centred, scale, shift, residual, load(data.dy + i));
    const Vec<P> pull = hn::MulAdd(centred, parameter(gradient.slope + i), parameter(gradient.shift + i));
    if constexpr (kEnding == Ending::kResidual) {
      if (dresidual != nullptr) put(masked, dresidual + i);
      if (dx == nullptr) return;
    }
    put(hn::Mul(parameter(gradient.scale + i), hn::Add(masked, pull)), dx + i);
  }
  template <class Put>
  HWY_INLINE void At(int64_t i, const Put& put) const {
    At(
        i, [](const T* p) HWY_ATTR { return Load(p); }, [](const P* p) HWY_ATTR { return Load(p); }, put);
  }
  HWY_INLINE int64_t Head(int64_t c) const {
    return kStream ? ElementsToLine(dx != nullptr ? dx : dresidual, c) : 0;
  }
  HWY_INLINE void Step(int64_t i) {
    At(i, [](Vec<P> v, T* p) HWY_ATTR { Store(v, p); });
  }
  HWY_INLINE void StreamStep(int64_t i) {
    At(i, [](Vec<P> v, T* p) HWY_ATTR { kStream ? Stream(v, p) : Store(v, p); });
  }
  HWY_INLINE void StepN(int64_t i, int64_t n) {
    At(
        i, [n](const T* p) HWY_ATTR { return LoadN(p, n); }, [n](const P* p) HWY_ATTR { return LoadN(p, n); },
        [n](Vec<P> v, T* p) HWY_ATTR { StoreN(v, p, n); });
  }
  HWY_INLINE void Prefetch(int64_t i, int64_t n) const {
    PrefetchAhead(data.x + i, n * static_cast<int64_t>(sizeof(T)));
    PrefetchAhead(data.dy + i, n * static_cast<int64_t>(sizeof(T)));
    if constexpr (kEnding == Ending::kResidual) {
      PrefetchAhead(data.residual + i, n * static_cast<int64_t>(sizeof(T)));
    }
  }
};

// Backwards through the units: what the gathering pass read last may still be in cache.
template <typename T, Ending kEnding, bool kStream>
void RunApply(const Backward<T>& problem, const simd::NscPlan& plan, const simd::Affine<Stat<T>>& affine,
              const simd::Gradient<Stat<T>>& gradient, int64_t first, int64_t last) {
  const NscGeometry geometry{problem.shape, problem.groups, plan};
  const int64_t c = problem.shape.c;
  const GradientData<T> data{problem.x, problem.dy, problem.residual};
  for (int64_t unit = last; unit-- > first;) {
    const int64_t at = geometry.Group(unit) * c;
    geometry.ForRuns(unit, [&](int64_t offset, int64_t stride, int64_t rows) HWY_ATTR {
      for (int64_t row = 0; row < rows; ++row, offset += stride) {
        RowGradient<T, kEnding, kStream> output{
            data.At(offset),
            problem.dx == nullptr ? nullptr : problem.dx + offset,
            problem.dresidual == nullptr ? nullptr : problem.dresidual + offset,
            {affine.mean + at, affine.scale + at, affine.shift + at},
            {gradient.scale + at, gradient.slope + at, gradient.shift + at}};
        AlongRow<Stat<T>>(output, c);
      }
    });
  }
  if (kStream) hwy::FlushStream();
}

template <typename T>
HWY_INLINE void GatherBackward(const Backward<T>& problem, const simd::NscPlan& plan,
                               const simd::Affine<Stat<T>>& affine, const simd::Sums& sums, int64_t first,
                               int64_t last) {
  ForEnding(problem, false, [&](auto ending, auto) {
    RunGather<T, decltype(ending)::value>(problem, plan, affine, sums, first, last);
  });
}

template <typename T>
HWY_INLINE void ApplyBackward(const Backward<T>& problem, const simd::NscPlan& plan,
                              const simd::Affine<Stat<T>>& affine, const simd::Gradient<Stat<T>>& gradient,
                              int64_t first, int64_t last) {
  ForEnding(problem, plan.stream, [&](auto ending, auto stream) {
    RunApply<T, decltype(ending)::value, decltype(stream)::value>(problem, plan, affine, gradient, first,
                                                                  last);
  });
}

// Adds the units of a group, in order, into those of its first unit; then the gradient's coefficients.
template <typename T>
HWY_INLINE void FoldBackwardNsc(const Backward<T>& problem, const simd::NscPlan& plan, const simd::Sums& sums,
                                const simd::Gradient<Stat<T>>& gradient, int64_t group, int64_t first,
                                int64_t last) {
  const int64_t c = problem.shape.c;
  const int64_t unit0 = group * plan.blocks;
  double* sum = sums.first + unit0 * c + first;
  double* products = sums.second + unit0 * c + first;
  for (int64_t unit = unit0 + 1; unit < unit0 + plan.blocks; ++unit) {
    const double* unit_sum = sums.first + unit * c + first;
    const double* unit_products = sums.second + unit * c + first;
    ForChannels<double>(last - first, [&](int64_t i, int64_t n) HWY_ATTR {
      StoreUpTo<double>(hn::Add(LoadUpTo(sum + i, n), LoadUpTo(unit_sum + i, n)), sum + i, n);
      StoreUpTo<double>(hn::Add(LoadUpTo(products + i, n), LoadUpTo(unit_products + i, n)), products + i, n);
    });
  }
  const int64_t at = group * c + first;
  const double count = static_cast<double>(problem.groups.size * problem.shape.s);
  FoldBackward<T>(problem, group, first, last, count, sum, products,
                  {gradient.scale + at, gradient.slope + at, gradient.shift + at});
}

#define RENORM_DEFINE(T)                                                                                    \
  void GatherBackward_##T(const Backward<T>& problem, const simd::NscPlan& plan,                            \
                          const simd::Affine<Stat<T>>& affine, const simd::Sums& sums, int64_t first,       \
                          int64_t last) {                                                                   \
    GatherBackward(problem, plan, affine, sums, first, last);                                               \
  }                                                                                                         \
  void AffineBackward_##T(const Backward<T>& problem, const simd::Affine<Stat<T>>& affine, int64_t group) { \
    const int64_t at = group * problem.shape.c;                                                             \
    AffineOf<T>(problem, group, 0, problem.shape.c,                                                         \
                {affine.mean + at, affine.scale + at, affine.shift + at});                                  \
  }                                                                                                         \
  void FoldBackward_##T(const Backward<T>& problem, const simd::NscPlan& plan, const simd::Sums& sums,      \
                        const simd::Gradient<Stat<T>>& gradient, int64_t group, int64_t first,              \
                        int64_t last) {                                                                     \
    FoldBackwardNsc(problem, plan, sums, gradient, group, first, last);                                     \
  }                                                                                                         \
  void ApplyBackward_##T(const Backward<T>& problem, const simd::NscPlan& plan,                             \
                         const simd::Affine<Stat<T>>& affine, const simd::Gradient<Stat<T>>& gradient,      \
                         int64_t first, int64_t last) {                                                     \
    ApplyBackward(problem, plan, affine, gradient, first, last);                                            \
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
  HWY_EXPORT(GatherBackward_##T);                                                                            \
  HWY_EXPORT(AffineBackward_##T);                                                                            \
  HWY_EXPORT(FoldBackward_##T);                                                                              \
  HWY_EXPORT(ApplyBackward_##T);                                                                             \
  void simd::gather_backward_nsc(const Backward<T>& problem, const NscPlan& plan,                            \
                                 const Affine<Stat<T>>& affine, const Sums& sums, int64_t first,             \
                                 int64_t last) {                                                             \
    HWY_DYNAMIC_DISPATCH(GatherBackward_##T)(problem, plan, affine, sums, first, last);                      \
  }                                                                                                          \
  void simd::affine_backward_nsc(const Backward<T>& problem, const Affine<Stat<T>>& affine, int64_t group) { \
    HWY_DYNAMIC_DISPATCH(AffineBackward_##T)(problem, affine, group);                                        \
  }                                                                                                          \
  void simd::fold_backward_nsc(const Backward<T>& problem, const NscPlan& plan, const Sums& sums,            \
                               const Gradient<Stat<T>>& gradient, int64_t group, int64_t first,              \
                               int64_t last) {                                                               \
    HWY_DYNAMIC_DISPATCH(FoldBackward_##T)(problem, plan, sums, gradient, group, first, last);               \
  }                                                                                                          \
  void simd::apply_backward_nsc(const Backward<T>& problem, const NscPlan& plan,                             \
                                const Affine<Stat<T>>& affine, const Gradient<Stat<T>>& gradient,            \
                                int64_t first, int64_t last) {                                               \
    HWY_DYNAMIC_DISPATCH(ApplyBackward_##T)(problem, plan, affine, gradient, first, last);                   \
  }
RENORM_EXPORT(float)
RENORM_EXPORT(double)
RENORM_EXPORT(BFloat16)
#undef RENORM_EXPORT

}  // namespace renorm::kernels
#endif  // HWY_ONCE
