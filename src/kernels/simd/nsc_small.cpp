// Channels-last problems whose groups have few rows, for example dense data in groups of four: each vector of
// channels of a group is gathered, folded and written at once, while its rows are in the innermost cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/simd/nsc_small.cpp"
#include "kernels/simd/targets.h"
// targets.h comes first.
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/simd/along-inl.h"
#include "kernels/simd/ending-inl.h"
#include "kernels/simd/fold-inl.h"
#include "kernels/simd/internal.h"

HWY_BEFORE_NAMESPACE();
namespace renorm::kernels {
namespace HWY_NAMESPACE {

// The groups and channels of a unit, and where the rows of a group are.
struct SmallUnit {
  int64_t first_group;
  int64_t last_group;
  int64_t first;  // channel
  int64_t width;
  int64_t rows;                      // per group
  int64_t group_step;                // in elements
  int64_t row[simd::kMaxSmallRows];  // offsets from the group's first row, in elements

  HWY_INLINE SmallUnit(const Shape& shape, const Groups& groups, const simd::SmallPlan& plan, int64_t unit)
      : first_group(unit / plan.parts * plan.groups),
        last_group(std::min(first_group + plan.groups, groups.count)),
        first(unit % plan.parts * plan.channels),
        width(std::min(plan.channels, shape.c - first)),
        rows(groups.size * shape.s),
        group_step(groups.group_step * shape.s * shape.c) {
    for (int64_t k = 0; k < rows; ++k) {
      row[k] = (k / shape.s * groups.example_step * shape.s + k % shape.s) * shape.c;
    }
  }
};

// Whole vectors, and the first n lanes of one.
struct Whole {
  template <typename P>
  HWY_INLINE int64_t Count() const {
    return Lanes<P>();
  }
  template <typename T>
  HWY_INLINE Vec<Stat<T>> operator()(const T* p) const {
    return Load(p);
  }
  template <typename T>
  HWY_INLINE void operator()(Vec<Stat<T>> v, T* p) const {
    Store(v, p);
  }
};
struct FirstLanes {
  int64_t n;
  template <typename P>
  HWY_INLINE int64_t Count() const {
    return n;
  }
  template <typename T>
  HWY_INLINE Vec<Stat<T>> operator()(const T* p) const {
    return LoadN(p, n);
  }
  template <typename T>
  HWY_INLINE void operator()(Vec<Stat<T>> v, T* p) const {
    StoreN(v, p, n);
  }
};

// Calls body(i, access) for every vector of `width` channels.
template <typename P, class Body>
HWY_INLINE void ForVectors(int64_t width, const Body& body) {
  int64_t i = 0;
  for (; i + Lanes<P>() <= width; i += Lanes<P>()) body(i, Whole());
  if (i < width) body(i, FirstLanes{width - i});
}

template <typename T, Ending kEnding>
class SmallForward {
  using P = Stat<T>;

 public:
  SmallForward(const Forward<T>& problem, const SmallUnit& unit)
      : problem_(problem),
        unit_(unit),
        inv_running_std_(unit.width),
        inv_rows_(hn::Set(Tag<P>(), static_cast<P>(1.0 / static_cast<double>(unit.rows)))),
        eps_(hn::Set(Tag<P>(), static_cast<P>(problem.eps))),
        r_max_(hn::Set(Tag<P>(), static_cast<P>(problem.r_max))),
        r_min_(hn::Set(Tag<P>(), static_cast<P>(1.0 / problem.r_max))),
        d_max_(hn::Set(Tag<P>(), static_cast<P>(problem.d_max))),
        floor_(FloorOf<P>(problem.activation)) {
    ForVectors<P>(unit.width, [&](int64_t i, const auto& access) HWY_ATTR {
      const Vec<P> one = hn::Set(Tag<P>(), P(1));
      Store(hn::Div(one, access(problem.running_std + unit.first + i)), inv_running_std_.get() + i);
    });
  }

  HWY_INLINE void Group(int64_t group) {
    const int64_t base = group * unit_.group_step + unit_.first;
    const int64_t statistics = group * problem_.shape.c + unit_.first;
    ForVectors<P>(unit_.width, [&](int64_t i, const auto& access)
                                   HWY_ATTR { Vector(base + i, statistics + i, i, access); });
  }

 private:
  template <class Access>
  HWY_INLINE void Vector(int64_t base, int64_t at, int64_t i, const Access& access) {
    const T* x = problem_.x + base;
    const int64_t rows = unit_.rows;
    const Vec<P> start = access(x);
    Vec<P> sum = hn::Zero(Tag<P>());
    for (int64_t k = 1; k < rows; ++k) sum = hn::Add(sum, hn::Sub(access(x + unit_.row[k]), start));
    // mean + low is the sum of start and offset without rounding.
    const Vec<P> offset = hn::Mul(sum, inv_rows_);
    const Vec<P> mean = hn::Add(start, offset);
    const Vec<P> added = hn::Sub(mean, start);
    const Vec<P> low = hn::Add(hn::Sub(start, hn::Sub(mean, added)), hn::Sub(offset, added));
    Vec<P> squares = hn::Zero(Tag<P>());
    for (int64_t k = 0; k < rows; ++k) {
      const Vec<P> centred = hn::Sub(hn::Sub(access(x + unit_.row[k]), mean), low);
      squares = hn::MulAdd(centred, centred, squares);
    }
    const Vec<P> std = hn::Sqrt(hn::MulAdd(squares, inv_rows_, eps_));
    const int64_t channel = unit_.first + i;
    const Vec<P> inv_running_std = Load(inv_running_std_.get() + i);
    const Vec<P> distance = hn::Add(hn::Sub(mean, access(problem_.running_mean + channel)), low);
    const Vec<P> r = Clip<P>(hn::Mul(std, inv_running_std), r_min_, r_max_);
    const Vec<P> d = Clip<P>(hn::Mul(distance, inv_running_std), hn::Neg(d_max_), d_max_);
    const ScaleShift<P> output =
        CoefficientsOf<P>(access(problem_.weight + channel), access(problem_.bias + channel), r, d, std, low);
    access(mean, problem_.batch_mean + at);
    access(low, problem_.batch_mean_low + at);
    access(std, problem_.batch_std + at);
    access(r, problem_.r + at);
    access(d, problem_.d + at);
    for (int64_t k = 0; k < rows; ++k) {
      const int64_t offset_of_row = base + unit_.row[k];
      const Vec<P> centred = hn::Sub(access(problem_.x + offset_of_row), mean);
      const Vec<P> residual = LoadResidual<kEnding>(problem_.residual, offset_of_row, access);
      const Output<P> y = Finish<kEnding, P>(centred, output.scale, output.shift, residual, floor_);
      access(y.value, problem_.y + offset_of_row);
      StoreMask<kEnding, P>(MaskOf(problem_, offset_of_row), y, 0, access.template Count<P>());
    }
  }

  const Forward<T>& problem_;
  const SmallUnit& unit_;
  Scratch<P> inv_running_std_;
  Vec<P> inv_rows_;
  Vec<P> eps_;
  Vec<P> r_max_;
  Vec<P> r_min_;
  Vec<P> d_max_;
  Vec<P> floor_;
};

template <typename T, Ending kEnding>
void RunForwardSmall(const Forward<T>& problem, const simd::SmallPlan& plan, int64_t first, int64_t last) {
  for (int64_t index = first; index < last; ++index) {
    const SmallUnit unit(problem.shape, problem.groups, plan, index);
    SmallForward<T, kEnding> pass(problem, unit);
    for (int64_t group = unit.first_group; group < unit.last_group; ++group) pass.Group(group);
  }
}

template <typename T>
HWY_INLINE void ForwardSmall(const Forward<T>& problem, const simd::SmallPlan& plan, int64_t first,
                             int64_t last) {
  ForEnding(problem, false, [&](auto ending, auto) {
    RunForwardSmall<T, decltype(ending)::value>(problem, plan, first, last);
  });
}

// Sums of dweight and dbias collect in the data's precision over the groups of a unit.
template <typename T, Ending kEnding>
class SmallBackward {
  using P = Stat<T>;

 public:
  SmallBackward(const Backward<T>& problem, const SmallUnit& unit)
      : problem_(problem),
        unit_(unit),
        dweight_(unit.width),
        dbias_(unit.width),
        share_(hn::Set(Tag<P>(), problem.frozen ? P(0) : P(-1.0 / static_cast<double>(unit.rows)))) {
    std::fill_n(dweight_.get(), unit.width + Lanes<P>(), P(0));
    std::fill_n(dbias_.get(), unit.width + Lanes<P>(), P(0));
  }

  HWY_INLINE void Group(int64_t group) {
    const int64_t base = group * unit_.group_step + unit_.first;
    const int64_t statistics = group * problem_.shape.c + unit_.first;
    ForVectors<P>(unit_.width, [&](int64_t i, const auto& access)
                                   HWY_ATTR { Vector(base + i, statistics + i, i, access); });
  }

  HWY_INLINE void Finish(double* dweight, double* dbias) {
    for (int64_t i = 0; i < unit_.width; ++i) {
      dweight[i] = static_cast<double>(dweight_.get()[i]);
      dbias[i] = static_cast<double>(dbias_.get()[i]);
    }
  }

 private:
  template <class Access>
  HWY_INLINE void Vector(int64_t base, int64_t at, int64_t i, const Access& access) {
    const int64_t channel = unit_.first + i;
    const Vec<P> mean = access(problem_.batch_mean + at);
    const Vec<P> low = access(problem_.batch_mean_low + at);
    const Vec<P> std = access(problem_.batch_std + at);
    const Vec<P> r = access(problem_.r + at);
    const Vec<P> d = access(problem_.d + at);
    const Vec<P> weight = access(problem_.weight + channel);
    const MaskBits mask = MaskOf(problem_);
    const ScaleShift<P> output =
        kEnding != Ending::kRelu ? ScaleShift<P>{mean, mean}
                                 : CoefficientsOf<P>(weight, access(problem_.bias + channel), r, d, std, low);
    const auto masked = [&](int64_t offset, Vec<P> centred) HWY_ATTR {
      return Mask<kEnding, P>(centred, output.scale, output.shift, LoadMask<kEnding>(mask, offset),
                              access(problem_.dy + offset));
    };
    Vec<P> sum = hn::Zero(Tag<P>());
    Vec<P> products = hn::Zero(Tag<P>());
    for (int64_t k = 0; k < unit_.rows; ++k) {
      const int64_t offset = base + unit_.row[k];
      const Vec<P> centred = hn::Sub(access(problem_.x + offset), mean);
      const Vec<P> gradient = masked(offset, centred);
      sum = hn::Add(sum, gradient);
      products = hn::MulAdd(gradient, centred, products);
    }
    const Vec<P> about_mean = hn::NegMulAdd(low, sum, products);
    const Vec<P> inv_std = hn::Div(hn::Set(Tag<P>(), P(1)), std);
    const Vec<P> r_over_std = hn::Mul(r, inv_std);
    Add(hn::MulAdd(r_over_std, about_mean, hn::Mul(d, sum)), dweight_.get() + i);
    Add(sum, dbias_.get() + i);
    const Vec<P> slope = hn::Mul(hn::Mul(about_mean, share_), hn::Mul(inv_std, inv_std));
    const Vec<P> shift = hn::NegMulAdd(slope, low, hn::Mul(sum, share_));
    const Vec<P> scale = hn::Mul(weight, r_over_std);
    for (int64_t k = 0; k < unit_.rows; ++k) {
      const int64_t offset = base + unit_.row[k];
      const Vec<P> centred = hn::Sub(access(problem_.x + offset), mean);
      const Vec<P> gradient = masked(offset, centred);
      if (problem_.dresidual != nullptr) access(gradient, problem_.dresidual + offset);
      if (problem_.dx == nullptr) continue;
      const Vec<P> pull = hn::MulAdd(centred, slope, shift);
      access(hn::Mul(scale, hn::Add(gradient, pull)), problem_.dx + offset);
    }
  }

  static HWY_INLINE void Add(Vec<P> v, P* to) { Store(hn::Add(Load(to), v), to); }

  const Backward<T>& problem_;
  const SmallUnit& unit_;
  Scratch<P> dweight_;
  Scratch<P> dbias_;
  Vec<P> share_;
};

template <typename T, Ending kEnding>
void RunBackwardSmall(const Backward<T>& problem, const simd::SmallPlan& plan, const simd::Sums& sums,
                      int64_t first, int64_t last) {
  for (int64_t index = first; index < last; ++index) {
    const SmallUnit unit(problem.shape, problem.groups, plan, index);
    SmallBackward<T, kEnding> pass(problem, unit);
    for (int64_t group = unit.first_group; group < unit.last_group; ++group) pass.Group(group);
    const int64_t at = index / plan.parts * problem.shape.c + unit.first;
    pass.Finish(sums.first + at, sums.second + at);
  }
}

template <typename T>
HWY_INLINE void BackwardSmall(const Backward<T>& problem, const simd::SmallPlan& plan, const simd::Sums& sums,
                              int64_t first, int64_t last) {
  ForEnding(problem, false, [&](auto ending, auto) {
    RunBackwardSmall<T, decltype(ending)::value>(problem, plan, sums, first, last);
  });
}

#define RENORM_DEFINE(T)                                                                                  \
  void ForwardSmall_##T(const Forward<T>& problem, const simd::SmallPlan& plan, int64_t first,            \
                        int64_t last) {                                                                   \
    ForwardSmall(problem, plan, first, last);                                                             \
  }                                                                                                       \
  void BackwardSmall_##T(const Backward<T>& problem, const simd::SmallPlan& plan, const simd::Sums& sums, \
                         int64_t first, int64_t last) {                                                   \
    BackwardSmall(problem, plan, sums, first, last);                                                      \
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

#define RENORM_EXPORT(T)                                                                             \
  HWY_EXPORT(ForwardSmall_##T);                                                                      \
  HWY_EXPORT(BackwardSmall_##T);                                                                     \
  void simd::forward_nsc_small(const Forward<T>& problem, const SmallPlan& plan, int64_t first,      \
                               int64_t last) {                                                       \
    HWY_DYNAMIC_DISPATCH(ForwardSmall_##T)(problem, plan, first, last);                              \
  }                                                                                                  \
  void simd::backward_nsc_small(const Backward<T>& problem, const SmallPlan& plan, const Sums& sums, \
                                int64_t first, int64_t last) {                                       \
    HWY_DYNAMIC_DISPATCH(BackwardSmall_##T)(problem, plan, sums, first, last);                       \
  }
RENORM_EXPORT(float)
RENORM_EXPORT(double)
RENORM_EXPORT(BFloat16)
#undef RENORM_EXPORT

}  // namespace renorm::kernels
#endif  // HWY_ONCE
