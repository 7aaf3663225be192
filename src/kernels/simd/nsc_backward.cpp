// Channels-last backward: sequential passes over rows, with the sums of all channels in the innermost cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/nsc_backward.cpp"
#include "kernels/simd/targets.h"
// targets.h comes first.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/simd/backward_rows-inl.h"
#include "kernels/simd/ending-inl.h"
#include "kernels/simd/fold-inl.h"
#include "kernels/simd/internal.h"
#include "kernels/simd/nsc-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

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
    data_ = data;
    AddRowsOfRun(*this, stride, rows);
  }

  template <int kRows, bool kFirst>
  HWY_INLINE void Rows(int64_t offset, int64_t apart) {
    AddRows<T, kEnding, kRows, kFirst>(data_.At(offset), apart, c_, affine_, sum_.get(), products_.get(),
                                       /*head=*/0, kGatherAhead<T>);
  }

  HWY_NOINLINE void Merge(double) {
    ForChannels<P>(c_, [&](int64_t i, int64_t n) HWY_ATTR {
      StoreWideUpTo<P>(LoadWideUpTo<P>(first_ + i, n) + Widen(Load(sum_.get() + i)), first_ + i, n);
      StoreWideUpTo<P>(LoadWideUpTo<P>(second_ + i, n) + Widen(Load(products_.get() + i)), second_ + i, n);
    });
  }

 private:
  GradientData<T> data_{};
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
  const GradientData<T> data = DataOf(problem);
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t at = geometry.Group(unit) * c;
    RowSums<T, kEnding> rows_sums(c, {affine.mean + at, affine.scale + at, affine.shift + at},
                                  sums.first + unit * c, sums.second + unit * c);
    geometry.ForRuns(unit, [&](int64_t offset, int64_t stride, int64_t rows)
                               HWY_ATTR { rows_sums.Add(data.At(offset), stride, rows); });
  }
}

// Backwards through the units: what the gathering pass read last may still be in cache.
template <typename T, Ending kEnding, bool kStream>
void RunApply(const Backward<T>& problem, const simd::NscPlan& plan, const simd::Affine<Stat<T>>& affine,
              const simd::Gradient<Stat<T>>& gradient, int64_t first, int64_t last) {
  const NscGeometry geometry{problem.shape, problem.groups, plan};
  const int64_t c = problem.shape.c;
  const GradientData<T> data = DataOf(problem);
  for (int64_t unit = last; unit-- > first;) {
    const int64_t at = geometry.Group(unit) * c;
    geometry.ForRuns(unit, [&](int64_t offset, int64_t stride, int64_t rows) HWY_ATTR {
      const auto output_at = [&](int64_t row) HWY_ATTR {
        const int64_t start = offset + row * stride;
        return RowGradient<T, kEnding, kStream>{
            data.At(start),
            problem.dx == nullptr ? nullptr : problem.dx + start,
            problem.dresidual == nullptr ? nullptr : problem.dresidual + start,
            {affine.mean + at, affine.scale + at, affine.shift + at},
            {gradient.scale + at, gradient.slope + at, gradient.shift + at},
            /*next=*/0,
            kAhead<T>};
      };
      WriteRun<T, kEnding, kStream>(output_at, stride, rows, c);
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
  if (problem.dx == nullptr && problem.dresidual == nullptr) return;
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

#define RENORM_EXPORT(T)                                                                                 \
  HWY_EXPORT(GatherBackward_##T);                                                                        \
  HWY_EXPORT(AffineBackward_##T);                                                                        \
  HWY_EXPORT(FoldBackward_##T);                                                                          \
  HWY_EXPORT(ApplyBackward_##T);                                                                         \
  void simd::gather_backward_nsc(const Backward<T>& problem, const NscPlan& plan,                        \
                                 const Affine<Stat<T>>& affine, const Sums& sums, int64_t first,         \
                                 int64_t last) {                                                         \
    HWY_DYNAMIC_DISPATCH(GatherBackward_##T)(problem, plan, affine, sums, first, last);                  \
  }                                                                                                      \
  void simd::affine_backward(const Backward<T>& problem, const Affine<Stat<T>>& affine, int64_t group) { \
    HWY_DYNAMIC_DISPATCH(AffineBackward_##T)(problem, affine, group);                                    \
  }                                                                                                      \
  void simd::fold_backward_nsc(const Backward<T>& problem, const NscPlan& plan, const Sums& sums,        \
                               const Gradient<Stat<T>>& gradient, int64_t group, int64_t first,          \
                               int64_t last) {                                                           \
    HWY_DYNAMIC_DISPATCH(FoldBackward_##T)(problem, plan, sums, gradient, group, first, last);           \
  }                                                                                                      \
  void simd::apply_backward_nsc(const Backward<T>& problem, const NscPlan& plan,                         \
                                const Affine<Stat<T>>& affine, const Gradient<Stat<T>>& gradient,        \
                                int64_t first, int64_t last) {                                           \
    HWY_DYNAMIC_DISPATCH(ApplyBackward_##T)(problem, plan, affine, gradient, first, last);               \
  }
RENORM_EXPORT(float)
RENORM_EXPORT(double)
RENORM_EXPORT(BFloat16)
#undef RENORM_EXPORT

}  // namespace renorm::kernels
#endif  // HWY_ONCE
