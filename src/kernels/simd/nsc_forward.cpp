// Channels-last training forward and inference: sequential passes over rows, with the sums of all channels in
// the innermost cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/nsc_forward.cpp"
#include "kernels/simd/targets.h"
// targets.h comes first.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/simd/ending-inl.h"
#include "kernels/simd/fold-inl.h"
#include "kernels/simd/forward_rows-inl.h"
#include "kernels/simd/internal.h"
#include "kernels/simd/nsc-inl.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// Up to this many rows an outlier as the shift costs no accuracy that float has.
constexpr int64_t kFewRows = 16;

// The moments of all channels over the rows so far; shift is the mean of the last chunk.
template <typename T>
class RowMoments {
  using P = Stat<T>;

 public:
  RowMoments(int64_t c, double* mean, double* m2)
      : c_(c), shift_(c), sum_(c), squares_(c), mean_(mean), m2_(m2) {
    std::fill(mean, mean + c, 0.0);
    std::fill(m2, m2 + c, 0.0);
  }

  // The first shift: per channel the median of five rows, or the first row where rows are few. A single row
  // may be an outlier of many, far from all others, and would cancel away digits of the first chunk's
  // variance.
  template <class RowAt>
  HWY_INLINE void Start(int64_t rows, const RowAt& row_at) {
    const int64_t lanes = Lanes<P>();
    const T* x[kPlaces];
    for (int64_t k = 0; k < kPlaces; ++k) {
      x[k] = row_at(rows <= kFewRows ? 0 : (2 * k + 1) * rows / (2 * kPlaces));
    }
    const auto shift_by = [&](int64_t i, auto&& load) HWY_ATTR {
      const Vec<P> value = rows <= kFewRows ? load(x[0] + i)
                                            : MedianOfFive(load(x[0] + i), load(x[1] + i), load(x[2] + i),
                                                           load(x[3] + i), load(x[4] + i));
      Store(value, shift_.get() + i);
    };
    int64_t i = 0;
    for (; i + lanes <= c_; i += lanes) shift_by(i, [](const T* p) HWY_ATTR { return Load(p); });
    if (i < c_) shift_by(i, [this, i](const T* p) HWY_ATTR { return LoadN(p, c_ - i); });
  }

  HWY_INLINE void Add(const T* x, int64_t stride, int64_t rows) {
    x_ = x;
    AddRowsOfRun(*this, stride, rows);
  }

  template <int kRows, bool kFirst>
  HWY_INLINE void Rows(int64_t offset, int64_t apart) {
    AddRows<T, kRows, kFirst>(x_ + offset, apart, c_, shift_.get(), sum_.get(), squares_.get(),
                              /*head=*/0, kGatherAhead<T>);
  }

  HWY_NOINLINE void Merge(double rows) {
    const double total = count_ + rows;
    const Wide<P> inv_rows = SetWide<P>(1.0 / rows);
    const Wide<P> share = SetWide<P>(rows / total);
    const Wide<P> both = SetWide<P>(count_ * (rows / total));
    ForChannels<P>(c_, [&](int64_t i, int64_t n) HWY_ATTR {
      const Wide<P> sum = Widen(Load(sum_.get() + i));
      const Wide<P> offset = sum * inv_rows;
      const Wide<P> chunk_mean = Widen(Load(shift_.get() + i)) + offset;
      const Wide<P> chunk_m2 = NotBelowZero<P>(Widen(Load(squares_.get() + i)) - sum * offset);
      const Wide<P> mean = LoadWideUpTo<P>(mean_ + i, n);
      const Wide<P> delta = chunk_mean - mean;
      StoreWideUpTo<P>(mean + delta * share, mean_ + i, n);
      StoreWideUpTo<P>(LoadWideUpTo<P>(m2_ + i, n) + chunk_m2 + delta * delta * both, m2_ + i, n);
      Store(Narrow(chunk_mean), shift_.get() + i);
    });
    count_ = total;
  }

 private:
  const T* x_ = nullptr;
  int64_t c_;
  double count_ = 0.0;
  Scratch<P> shift_;
  Scratch<P> sum_;
  Scratch<P> squares_;
  double* mean_;
  double* m2_;
};

template <typename T>
HWY_INLINE void GatherNsc(const Forward<T>& problem, const simd::NscPlan& plan, const simd::Sums& sums,
                          int64_t first, int64_t last) {
  const NscGeometry geometry{problem.shape, problem.groups, plan};
  const int64_t c = problem.shape.c;
  for (int64_t unit = first; unit < last; ++unit) {
    RowMoments<T> moments(c, sums.first + unit * c, sums.second + unit * c);
    moments.Start(geometry.LastRow(unit) - geometry.FirstRow(unit),
                  [&](int64_t row) { return problem.x + geometry.RowOffset(unit, row); });
    geometry.ForRuns(unit, [&](int64_t offset, int64_t stride, int64_t rows)
                               HWY_ATTR { moments.Add(problem.x + offset, stride, rows); });
  }
}

// Merges the units of a group, in order, into those of its first unit; then statistics and coefficients.
template <typename T>
HWY_INLINE void FoldNsc(const Forward<T>& problem, const simd::NscPlan& plan, const simd::Sums& sums,
                        const simd::Affine<Stat<T>>& affine, int64_t group, int64_t first, int64_t last) {
  const NscGeometry geometry{problem.shape, problem.groups, plan};
  const int64_t c = problem.shape.c;
  const int64_t unit0 = group * plan.blocks;
  double* mean = sums.first + unit0 * c + first;
  double* m2 = sums.second + unit0 * c + first;
  double count = static_cast<double>(geometry.LastRow(unit0) - geometry.FirstRow(unit0));
  for (int64_t unit = unit0 + 1; unit < unit0 + plan.blocks; ++unit) {
    const double rows = static_cast<double>(geometry.LastRow(unit) - geometry.FirstRow(unit));
    const double* unit_mean = sums.first + unit * c + first;
    const double* unit_m2 = sums.second + unit * c + first;
    const VecD share = hn::Set(Tag<double>(), rows / (count + rows));
    const VecD both = hn::Set(Tag<double>(), count * (rows / (count + rows)));
    ForChannels<double>(last - first, [&](int64_t i, int64_t n) HWY_ATTR {
      const VecD old = LoadUpTo(mean + i, n);
      const VecD delta = hn::Sub(LoadUpTo(unit_mean + i, n), old);
      const VecD added = hn::MulAdd(hn::Mul(delta, delta), both, LoadUpTo(unit_m2 + i, n));
      StoreUpTo<double>(hn::MulAdd(delta, share, old), mean + i, n);
      StoreUpTo<double>(hn::Add(LoadUpTo(m2 + i, n), added), m2 + i, n);
    });
    count += rows;
  }
  const int64_t at = group * c + first;
  FoldForward<T>(problem, group, first, last, count, mean, m2,
                 {affine.mean + at, affine.scale + at, affine.shift + at});
}

// Backwards through the units: what the gathering pass read last may still be in cache.
template <typename T, Ending kEnding, bool kStream>
void RunApply(const Forward<T>& problem, const simd::NscPlan& plan, const simd::Affine<Stat<T>>& affine,
              int64_t first, int64_t last) {
  const NscGeometry geometry{problem.shape, problem.groups, plan};
  const int64_t c = problem.shape.c;
  const Vec<Stat<T>> floor = FloorOf<Stat<T>>(problem.activation);
  for (int64_t unit = last; unit-- > first;) {
    const int64_t at = geometry.Group(unit) * c;
    geometry.ForRuns(unit, [&](int64_t offset, int64_t stride, int64_t rows) HWY_ATTR {
      const auto output_at = [&](int64_t row) HWY_ATTR {
        const int64_t start = offset + row * stride;
        const T* residual = kEnding == Ending::kResidual ? problem.residual + start : nullptr;
        return RowOutput<T, kEnding, kStream>{
            problem.x + start, residual, problem.y + start,      affine.mean + at, affine.scale + at,
            affine.shift + at, floor,    MaskOf(problem, start),
            /*next=*/0,        kAhead<T>};
      };
      WriteRun<T, kEnding, kStream>(output_at, stride, rows, c);
    });
  }
  if (kStream) hwy::FlushStream();
}

template <typename T>
HWY_INLINE void ApplyNsc(const Forward<T>& problem, const simd::NscPlan& plan,
                         const simd::Affine<Stat<T>>& affine, int64_t first, int64_t last) {
  ForEnding(problem, plan.stream, [&](auto ending, auto stream) {
    RunApply<T, decltype(ending)::value, decltype(stream)::value>(problem, plan, affine, first, last);
  });
}

#define RENORM_DEFINE(T)                                                                              \
  void GatherNsc_##T(const Forward<T>& problem, const simd::NscPlan& plan, const simd::Sums& sums,    \
                     int64_t first, int64_t last) {                                                   \
    GatherNsc(problem, plan, sums, first, last);                                                      \
  }                                                                                                   \
  void FoldNsc_##T(const Forward<T>& problem, const simd::NscPlan& plan, const simd::Sums& sums,      \
                   const simd::Affine<Stat<T>>& affine, int64_t group, int64_t first, int64_t last) { \
    FoldNsc(problem, plan, sums, affine, group, first, last);                                         \
  }                                                                                                   \
  void ApplyNsc_##T(const Forward<T>& problem, const simd::NscPlan& plan,                             \
                    const simd::Affine<Stat<T>>& affine, int64_t first, int64_t last) {               \
    ApplyNsc(problem, plan, affine, first, last);                                                     \
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
  HWY_EXPORT(GatherNsc_##T);                                                                             \
  HWY_EXPORT(FoldNsc_##T);                                                                               \
  HWY_EXPORT(ApplyNsc_##T);                                                                              \
  void simd::gather_nsc(const Forward<T>& problem, const NscPlan& plan, const Sums& sums, int64_t first, \
                        int64_t last) {                                                                  \
    HWY_DYNAMIC_DISPATCH(GatherNsc_##T)(problem, plan, sums, first, last);                               \
  }                                                                                                      \
  void simd::fold_nsc(const Forward<T>& problem, const NscPlan& plan, const Sums& sums,                  \
                      const Affine<Stat<T>>& affine, int64_t group, int64_t first, int64_t last) {       \
    HWY_DYNAMIC_DISPATCH(FoldNsc_##T)(problem, plan, sums, affine, group, first, last);                  \
  }                                                                                                      \
  void simd::apply_nsc(const Forward<T>& problem, const NscPlan& plan, const Affine<Stat<T>>& affine,    \
                       int64_t first, int64_t last) {                                                    \
    HWY_DYNAMIC_DISPATCH(ApplyNsc_##T)(problem, plan, affine, first, last);                              \
  }
RENORM_EXPORT(float)
RENORM_EXPORT(double)
RENORM_EXPORT(BFloat16)
#undef RENORM_EXPORT

}  // namespace renorm::kernels
#endif  // HWY_ONCE
