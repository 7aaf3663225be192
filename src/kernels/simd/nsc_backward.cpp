// Channels-last backward: sequential passes over rows, with the sums of all channels in the innermost cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/nsc_backward.cpp"
#include "kernels/simd/targets.h"
// targets.h comes first.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/simd/fold-inl.h"
#include "kernels/simd/internal.h"
#include "kernels/simd/nsc-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// The gradient before the activation: it passes where the output, recomputed as the forward computed it, is
// not clamped.
template <bool kRelu, typename P>
HWY_INLINE Vec<P> Mask(Vec<P> centred, Vec<P> gradient, Vec<P> scale, Vec<P> shift) {
  if constexpr (kRelu) {
    const auto closed = hn::Le(hn::MulAdd(centred, scale, shift), hn::Zero(Tag<P>()));
    return hn::IfThenZeroElse(closed, gradient);
  }
  (void)centred, (void)scale, (void)shift;
  return gradient;
}

// sum += dy and products += dy * (x - mean) over kRows rows; kFirst: sums start here.
template <typename T, bool kRelu, int kRows, bool kFirst>
HWY_INLINE void AddRows(const T* HWY_RESTRICT x, const T* HWY_RESTRICT dy, int64_t stride, int64_t c,
                        const simd::Affine<Stat<T>>& affine, Stat<T>* HWY_RESTRICT sum,
                        Stat<T>* HWY_RESTRICT products) {
  using P = Stat<T>;
  const int64_t lanes = Lanes<P>();
  const auto step = [&](int64_t i, auto&& load, auto&& load_parameter) HWY_ATTR {
    const Vec<P> mean = load_parameter(affine.mean + i);
    const Vec<P> scale = kRelu ? load_parameter(affine.scale + i) : mean;
    const Vec<P> shift = kRelu ? load_parameter(affine.shift + i) : mean;
    Vec<P> a = kFirst ? hn::Zero(Tag<P>()) : Load(sum + i);
    Vec<P> b = kFirst ? hn::Zero(Tag<P>()) : Load(products + i);
    for (int k = 0; k < kRows; ++k) {
      const Vec<P> centred = hn::Sub(load(x + k * stride + i), mean);
      const Vec<P> gradient = Mask<kRelu, P>(centred, load(dy + k * stride + i), scale, shift);
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
    prefetch(x, i);
    prefetch(dy, i);
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
template <typename T, bool kRelu>
class RowSums {
  using P = Stat<T>;

 public:
  RowSums(int64_t c, const simd::Affine<P>& affine, double* first, double* second)
      : c_(c), affine_(affine), sum_(c), products_(c), first_(first), second_(second) {
    std::fill(first, first + c, 0.0);
    std::fill(second, second + c, 0.0);
  }

  HWY_INLINE void Add(const T* x, const T* dy, int64_t stride, int64_t rows) {
    for (int64_t row = 0; row < rows; row += kChunkRows) {
      AddChunk(x + row * stride, dy + row * stride, stride, std::min(kChunkRows, rows - row));
    }
  }

 private:
  template <int kRows, bool kFirst>
  HWY_INLINE void Rows(const T* x, const T* dy, int64_t stride, int64_t row) {
    AddRows<T, kRelu, kRows, kFirst>(x + row * stride, dy + row * stride, stride, c_, affine_, sum_.get(),
                                     products_.get());
  }

  HWY_INLINE void AddChunk(const T* x, const T* dy, int64_t stride, int64_t rows) {
    int64_t row = 0;
    if (rows >= kRowsAtOnce) {
      Rows<kRowsAtOnce, true>(x, dy, stride, 0);
      for (row = kRowsAtOnce; row + kRowsAtOnce <= rows; row += kRowsAtOnce) {
        Rows<kRowsAtOnce, false>(x, dy, stride, row);
      }
    } else {
      Rows<1, true>(x, dy, stride, 0);
      row = 1;
    }
    for (; row < rows; ++row) Rows<1, false>(x, dy, stride, row);
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

template <typename T, bool kRelu>
void RunGather(const Backward<T>& problem, const simd::NscPlan& plan, const simd::Affine<Stat<T>>& affine,
               const simd::Sums& sums, int64_t first, int64_t last) {
  const NscGeometry geometry{problem.shape, problem.groups, plan};
  const int64_t c = problem.shape.c;
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t at = geometry.Group(unit) * c;
    RowSums<T, kRelu> rows_sums(c, {affine.mean + at, affine.scale + at, affine.shift + at},
                                sums.first + unit * c, sums.second + unit * c);
    geometry.ForRuns(unit, [&](int64_t offset, int64_t stride, int64_t rows) HWY_ATTR {
      rows_sums.Add(problem.x + offset, problem.dy + offset, stride, rows);
    });
  }
}

template <typename T, bool kRelu, bool kStream>
struct RowGradient {
  using P = Stat<T>;
  static constexpr int64_t kLine = kLineBytes / static_cast<int64_t>(sizeof(T));
  const T* HWY_RESTRICT x;
  const T* HWY_RESTRICT dy;
  T* HWY_RESTRICT dx;
  simd::Affine<P> affine;
  simd::Gradient<P> gradient;

  template <class Load, class LoadParameter>
  HWY_INLINE Vec<P> At(int64_t i, const Load& load, const LoadParameter& parameter) const {
    const Vec<P> mean = parameter(affine.mean + i);
    const Vec<P> centred = hn::Sub(load(x + i), mean);
    const Vec<P> scale = kRelu ? parameter(affine.scale + i) : mean;
    const Vec<P> shift = kRelu ? parameter(affine.shift + i) : mean;
    const Vec<P> masked = Mask<kRelu, P>(centred, load(dy + i), scale, shift);
    const Vec<P> pull = hn::MulAdd(centred, parameter(gradient.slope + i), parameter(gradient.shift + i));
    return hn::Mul(parameter(gradient.scale + i), hn::Add(masked, pull));
  }
  HWY_INLINE Vec<P> At(int64_t i) const {
    return At(
        i, [](const T* p) HWY_ATTR { return Load(p); }, [](const P* p) HWY_ATTR { return Load(p); });
  }
  HWY_INLINE int64_t Head(int64_t c) const { return kStream ? ElementsToLine(dx, c) : 0; }
  HWY_INLINE void Step(int64_t i) { Store(At(i), dx + i); }
  HWY_INLINE void StreamStep(int64_t i) {
    if constexpr (kStream) {
      Stream(At(i), dx + i);
    } else {
      Step(i);
    }
  }
  HWY_INLINE void StepN(int64_t i, int64_t n) {
    StoreN(At(
               i, [n](const T* p) HWY_ATTR { return LoadN(p, n); },
               [n](const P* p) HWY_ATTR { return LoadN(p, n); }),
           dx + i, n);
  }
  HWY_INLINE void Prefetch(int64_t i, int64_t n) const {
    PrefetchAhead(x + i, n * static_cast<int64_t>(sizeof(T)));
    PrefetchAhead(dy + i, n * static_cast<int64_t>(sizeof(T)));
  }
};

// Backwards through the units: what the gathering pass read last may still be in cache.
template <typename T, bool kRelu, bool kStream>
void RunApply(const Backward<T>& problem, const simd::NscPlan& plan, const simd::Affine<Stat<T>>& affine,
              const simd::Gradient<Stat<T>>& gradient, int64_t first, int64_t last) {
  const NscGeometry geometry{problem.shape, problem.groups, plan};
  const int64_t c = problem.shape.c;
  for (int64_t unit = last; unit-- > first;) {
    const int64_t at = geometry.Group(unit) * c;
    geometry.ForRuns(unit, [&](int64_t offset, int64_t stride, int64_t rows) HWY_ATTR {
      for (int64_t row = 0; row < rows; ++row, offset += stride) {
        RowGradient<T, kRelu, kStream> output{
            problem.x + offset,
            problem.dy + offset,
            problem.dx + offset,
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
  problem.activation == Activation::kRelu ? RunGather<T, true>(problem, plan, affine, sums, first, last)
                                          : RunGather<T, false>(problem, plan, affine, sums, first, last);
}

template <typename T>
HWY_INLINE void ApplyBackward(const Backward<T>& problem, const simd::NscPlan& plan,
                              const simd::Affine<Stat<T>>& affine, const simd::Gradient<Stat<T>>& gradient,
                              int64_t first, int64_t last) {
  if (problem.activation == Activation::kRelu) {
    plan.stream ? RunApply<T, true, true>(problem, plan, affine, gradient, first, last)
                : RunApply<T, true, false>(problem, plan, affine, gradient, first, last);
  } else {
    plan.stream ? RunApply<T, false, true>(problem, plan, affine, gradient, first, last)
                : RunApply<T, false, false>(problem, plan, affine, gradient, first, last);
  }
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
