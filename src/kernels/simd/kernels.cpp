// Supplies the absent arguments of a problem and runs its phases. The loops are in the other files of this
// folder.
#include "kernels/kernels.h"

#include <algorithm>
#include <memory>

#include "kernels/simd/internal.h"
#include "kernels/simd/plan.h"

namespace renorm::kernels {
namespace {

// Channels folded by one task.
constexpr int64_t kFoldChannels = 512;
// With this many groups or more, each is gathered and written before the next is read.
constexpr int64_t kGroupwise = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t values_of(const Shape& shape) { return shape.n * shape.c * shape.s; }

// Uninitialized memory for `count` values.
template <typename P>
std::unique_ptr<P[]> allocate(int64_t count) {
  return std::unique_ptr<P[]>(new P[static_cast<size_t>(std::max<int64_t>(count, 1))]);
}

// Constant arrays for the absent arguments of a problem.
template <typename P>
class Defaults {
 public:
  // `given`, or `count` times `value`.
  const P* fill(const P* given, int64_t count, P value) {
    if (given != nullptr) return given;
    std::unique_ptr<P[]>& array = arrays_[used_++];
    array = allocate<P>(count);
    std::fill_n(array.get(), count, value);
    return array.get();
  }

 private:
  std::unique_ptr<P[]> arrays_[5];
  int used_ = 0;
};

// Memory for a struct of three arrays: simd::Affine<P> or simd::Gradient<P>.
template <typename P, template <typename> class Arrays>
class ThreeArrays {
 public:
  explicit ThreeArrays(int64_t count) : data_(allocate<P>(3 * count)), count_(count) {}
  Arrays<P> get() { return {data_.get(), data_.get() + count_, data_.get() + 2 * count_}; }

 private:
  std::unique_ptr<P[]> data_;
  int64_t count_;
};
template <typename P>
using AffineArrays = ThreeArrays<P, simd::Affine>;
template <typename P>
using GradientArrays = ThreeArrays<P, simd::Gradient>;

class SumArrays {
 public:
  explicit SumArrays(int64_t count) : data_(allocate<double>(2 * count)), count_(count) {}
  simd::Sums get() { return {data_.get(), data_.get() + count_}; }

 private:
  std::unique_ptr<double[]> data_;
  int64_t count_;
};

// gather(first, last) and apply(first, last) take units, fold(group, first, last) takes channels of a group.
// With many groups a task takes whole groups, which stay in its cache between the two passes; the arithmetic
// is the same.
template <class Gather, class Fold, class Apply>
void run_nsc(const Shape& shape, const Groups& groups, const simd::NscPlan& plan,
             const ParallelFor& parallel_for, const Gather& gather, const Fold& fold, const Apply& apply) {
  if (groups.count >= kGroupwise) {
    parallel_for(groups.count, [&](int64_t first, int64_t last) {
      for (int64_t group = first; group < last; ++group) {
        gather(group * plan.blocks, (group + 1) * plan.blocks);
        fold(group, 0, shape.c);
        apply(group * plan.blocks, (group + 1) * plan.blocks);
      }
    });
    return;
  }
  const int64_t parts = ceil_div(shape.c, kFoldChannels);
  parallel_for(plan.units, gather);
  parallel_for(groups.count * parts, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t channel = task % parts * kFoldChannels;
      fold(task / parts, channel, std::min(channel + kFoldChannels, shape.c));
    }
  });
  parallel_for(plan.units, apply);
}

template <typename T>
void forward_nsc(const Forward<T>& problem, const ParallelFor& parallel_for) {
  const Shape& shape = problem.shape;
  const simd::NscPlan plan = simd::plan_nsc(simd::traffic_of(problem), problem.groups);
  SumArrays sum_arrays(plan.units * shape.c);
  AffineArrays<Stat<T>> affine_arrays(problem.groups.count * shape.c);
  const simd::Sums sums = sum_arrays.get();
  const simd::Affine<Stat<T>> affine = affine_arrays.get();
  run_nsc(
      shape, problem.groups, plan, parallel_for,
      [&](int64_t first, int64_t last) { simd::gather_nsc(problem, plan, sums, first, last); },
      [&](int64_t group, int64_t first, int64_t last) {
        simd::fold_nsc(problem, plan, sums, affine, group, first, last);
      },
      [&](int64_t first, int64_t last) { simd::apply_nsc(problem, plan, affine, first, last); });
}

template <typename T>
void forward_pieces(const Forward<T>& problem, const ParallelFor& parallel_for) {
  const simd::PiecePlan plan = simd::plan_pieces(simd::traffic_of(problem), problem.groups);
  SumArrays sums(plan.units);
  AffineArrays<Stat<T>> arrays(problem.groups.count * problem.shape.c);
  const simd::Affine<Stat<T>> affine = arrays.get();
  parallel_for(plan.units, [&](int64_t first, int64_t last) {
    simd::gather_pieces(problem, plan, sums.get(), first, last);
  });
  simd::fold_pieces(problem, plan, sums.get(), affine);
  parallel_for(plan.units,
               [&](int64_t first, int64_t last) { simd::apply_pieces(problem, plan, affine, first, last); });
}

template <typename T>
void backward_pieces(const Backward<T>& problem, bool may_stream, const simd::Sums& sums,
                     const ParallelFor& parallel_for) {
  const int64_t statistics = problem.groups.count * problem.shape.c;
  simd::PiecePlan plan = simd::plan_pieces(simd::traffic_of(problem), problem.groups);
  plan.stream = plan.stream && may_stream;
  SumArrays pieces(plan.units);
  AffineArrays<Stat<T>> affine_arrays(statistics);
  GradientArrays<Stat<T>> gradient_arrays(statistics);
  const simd::Affine<Stat<T>> affine = affine_arrays.get();
  const simd::Gradient<Stat<T>> gradient = gradient_arrays.get();
  for (int64_t group = 0; group < problem.groups.count; ++group)
    simd::affine_backward(problem, affine, group);
  parallel_for(plan.units, [&](int64_t first, int64_t last) {
    simd::gather_backward_pieces(problem, plan, affine, pieces.get(), first, last);
  });
  simd::fold_backward_pieces(problem, plan, pieces.get(), sums, gradient);
  if (problem.dx == nullptr && problem.dresidual == nullptr) return;
  parallel_for(plan.units, [&](int64_t first, int64_t last) {
    simd::apply_backward_pieces(problem, plan, affine, gradient, first, last);
  });
}

template <typename T>
void backward_nsc(const Backward<T>& problem, const simd::NscPlan& plan, const simd::Sums& sums,
                  const ParallelFor& parallel_for) {
  const Shape& shape = problem.shape;
  AffineArrays<Stat<T>> affine_arrays(problem.groups.count * shape.c);
  GradientArrays<Stat<T>> gradient_arrays(problem.groups.count * shape.c);
  const simd::Affine<Stat<T>> affine = affine_arrays.get();
  const simd::Gradient<Stat<T>> gradient = gradient_arrays.get();
  for (int64_t group = 0; group < problem.groups.count; ++group) {
    simd::affine_backward(problem, affine, group);
  }
  run_nsc(
      shape, problem.groups, plan, parallel_for,
      [&](int64_t first, int64_t last) {
        simd::gather_backward_nsc(problem, plan, affine, sums, first, last);
      },
      [&](int64_t group, int64_t first, int64_t last) {
        simd::fold_backward_nsc(problem, plan, sums, gradient, group, first, last);
      },
      [&](int64_t first, int64_t last) {
        simd::apply_backward_nsc(problem, plan, affine, gradient, first, last);
      });
}

// `rows` rows of c values added up in order, into [c] values or nowhere.
template <typename P>
void add_rows(const double* values, int64_t rows, int64_t c, P* sum) {
  if (sum == nullptr) return;
  const std::unique_ptr<double[]> total = allocate<double>(c);
  std::copy_n(values, c, total.get());
  for (int64_t row = 1; row < rows; ++row) {
    for (int64_t channel = 0; channel < c; ++channel) total[channel] += values[row * c + channel];
  }
  for (int64_t channel = 0; channel < c; ++channel) sum[channel] = static_cast<P>(total[channel]);
}

// dweight = sum over groups of r / batch_std * sum dy (x - mean) + d * sum dy, dbias = sum over groups of sum
// dy. The sums of group g start at g * stride.
template <typename T>
void reduce_groups(const Backward<T>& problem, const simd::Sums& sums, int64_t stride) {
  const int64_t c = problem.shape.c;
  const std::unique_ptr<double[]> totals = allocate<double>(2 * c);
  double* dweight = totals.get();
  double* dbias = totals.get() + c;
  std::fill_n(totals.get(), 2 * c, 0.0);
  for (int64_t group = 0; group < problem.groups.count; ++group) {
    const double* sum_dy = sums.first + group * stride;
    const double* sum_dy_x = sums.second + group * stride;
    for (int64_t channel = 0; channel < c; ++channel) {
      const int64_t at = group * c + channel;
      const double r_over_std =
          static_cast<double>(problem.r[at]) / static_cast<double>(problem.batch_std[at]);
      dweight[channel] +=
          r_over_std * sum_dy_x[channel] + static_cast<double>(problem.d[at]) * sum_dy[channel];
      dbias[channel] += sum_dy[channel];
    }
  }
  for (int64_t channel = 0; channel < c; ++channel) {
    if (problem.dweight != nullptr) problem.dweight[channel] = static_cast<Stat<T>>(dweight[channel]);
    if (problem.dbias != nullptr) problem.dbias[channel] = static_cast<Stat<T>>(dbias[channel]);
  }
}

template <typename T>
void backward_small(const Backward<T>& problem, const ParallelFor& parallel_for) {
  const int64_t c = problem.shape.c;
  const simd::SmallPlan plan = simd::plan_small(problem.shape, problem.groups);
  SumArrays arrays(plan.blocks * c);
  const simd::Sums sums = arrays.get();
  parallel_for(plan.blocks * plan.parts, [&](int64_t first, int64_t last) {
    simd::backward_nsc_small(problem, plan, sums, first, last);
  });
  add_rows(sums.first, plan.blocks, c, problem.dweight);
  add_rows(sums.second, plan.blocks, c, problem.dbias);
}

// Brings a problem into the form that the loops expect: mask and dresidual for kRelu only.
template <typename T>
void settle_residual(Backward<T>* problem, const ParallelFor& parallel_for) {
  if (problem->activation == Activation::kRelu) return;
  if (problem->dresidual != nullptr) {
    const int64_t example = problem->shape.c * problem->shape.s;
    parallel_for(problem->shape.n, [&](int64_t first, int64_t last) {
      std::copy_n(problem->dy + first * example, (last - first) * example,
                  problem->dresidual + first * example);
    });
  }
  problem->mask = nullptr;
  problem->dresidual = nullptr;
}

// Whether aligned lines of one output are aligned in the other. Either may be null.
bool same_alignment(const void* a, const void* b) {
  constexpr uintptr_t kLine = 64;
  return a == nullptr || b == nullptr ||
         reinterpret_cast<uintptr_t>(a) % kLine == reinterpret_cast<uintptr_t>(b) % kLine;
}

}  // namespace

template <typename T>
void forward(const Forward<T>& given, const ParallelFor& parallel_for) {
  if (given.groups.count == 0 || values_of(given.shape) == 0) return;
  using P = Stat<T>;
  Defaults<P> defaults;
  Forward<T> problem = given;
  const int64_t c = given.shape.c;
  problem.weight = defaults.fill(given.weight, c, P{1});
  problem.bias = defaults.fill(given.bias, c, P{0});
  if (given.running_std == nullptr) {
    problem.r_max = 1.0;  // any averages give r = 1, d = 0
    problem.d_max = 0.0;
  }
  problem.running_mean = defaults.fill(given.running_mean, c, P{0});
  problem.running_std = defaults.fill(given.running_std, c, P{1});
  if (problem.mask != nullptr) std::fill_n(problem.mask, mask_bytes(values_of(problem.shape)), uint8_t{0});
  if (problem.layout == Layout::kNsc) {
    if (simd::has_small_groups(problem.shape, problem.groups)) {
      const simd::SmallPlan plan = simd::plan_small(problem.shape, problem.groups);
      parallel_for(plan.blocks * plan.parts,
                   [&](int64_t first, int64_t last) { simd::forward_nsc_small(problem, plan, first, last); });
    } else {
      forward_nsc(problem, parallel_for);
    }
    return;
  }
  if (simd::has_few_channels(problem.shape, problem.groups)) {
    forward_pieces(problem, parallel_for);
    return;
  }
  const simd::NcsPlan plan = simd::plan_ncs(simd::traffic_of(problem), problem.groups);
  parallel_for(plan.units, [&](int64_t first, int64_t last) {
    plan.runs ? simd::forward_ncs_runs(problem, plan, first, last)
              : simd::forward_ncs(problem, plan, first, last);
  });
}

template <typename T>
void backward(const Backward<T>& given, const ParallelFor& parallel_for) {
  using P = Stat<T>;
  const Shape& shape = given.shape;
  if (given.groups.count == 0 || values_of(shape) == 0) {
    if (given.dweight != nullptr) std::fill_n(given.dweight, shape.c, P{0});
    if (given.dbias != nullptr) std::fill_n(given.dbias, shape.c, P{0});
    return;
  }
  Defaults<P> defaults;
  Backward<T> problem = given;
  const int64_t statistics = given.groups.count * shape.c;
  problem.weight = defaults.fill(given.weight, shape.c, P{1});
  problem.bias = defaults.fill(given.bias, shape.c, P{0});
  problem.batch_mean_low = defaults.fill(given.batch_mean_low, statistics, P{0});
  problem.r = defaults.fill(given.r, statistics, P{1});
  problem.d = defaults.fill(given.d, statistics, P{0});
  settle_residual(&problem, parallel_for);
  const bool may_stream = same_alignment(problem.dx, problem.dresidual);
  if (problem.layout == Layout::kNsc && simd::has_small_groups(shape, problem.groups)) {
    backward_small(problem, parallel_for);
    return;
  }
  if (problem.layout == Layout::kNsc) {
    simd::NscPlan plan = simd::plan_nsc(simd::traffic_of(problem), problem.groups);
    plan.stream = plan.stream && may_stream;
    SumArrays sums(plan.units * shape.c);
    backward_nsc(problem, plan, sums.get(), parallel_for);
    reduce_groups(problem, sums.get(), plan.blocks * shape.c);
    return;
  }
  SumArrays sums(statistics);
  if (simd::has_few_channels(shape, problem.groups)) {
    backward_pieces(problem, may_stream, sums.get(), parallel_for);
  } else {
    const simd::NcsPlan plan = simd::plan_ncs_backward(simd::traffic_of(problem), problem.groups, may_stream);
    parallel_for(plan.units, [&](int64_t first, int64_t last) {
      plan.runs ? simd::backward_ncs_runs(problem, plan, sums.get(), first, last)
                : simd::backward_ncs(problem, plan, sums.get(), first, last);
    });
  }
  reduce_groups(problem, sums.get(), shape.c);
}

template <typename T>
void inference(const Inference<T>& given, const ParallelFor& parallel_for) {
  using P = Stat<T>;
  const Shape& shape = given.shape;
  if (values_of(shape) == 0) return;
  AffineArrays<P> arrays(shape.c);
  const simd::Affine<P> affine = arrays.get();
  for (int64_t c = 0; c < shape.c; ++c) {
    affine.mean[c] = given.running_mean[c];
    affine.scale[c] = (given.weight != nullptr ? given.weight[c] : P{1}) / given.running_std[c];
    affine.shift[c] = given.bias != nullptr ? given.bias[c] : P{0};
  }
  const Groups whole = contiguous_groups(shape.n, shape.n);
  if (given.layout == Layout::kNcs) {
    const simd::NcsPlan plan = simd::plan_ncs(simd::traffic_of(given), whole);
    const bool runs = plan.runs && plan.stream;
    parallel_for(runs ? plan.units : shape.n * shape.c, [&](int64_t first, int64_t last) {
      runs ? simd::inference_ncs_runs(given, plan, affine, first, last)
           : simd::inference_ncs(given, affine, plan.stream, first, last);
    });
    return;
  }
  Forward<T> problem{};
  problem.shape = shape;
  problem.groups = whole;
  problem.activation = given.activation;
  problem.x = given.x;
  problem.y = given.y;
  problem.residual = given.residual;
  const simd::NscPlan plan = simd::plan_nsc(simd::traffic_of(problem), whole);
  parallel_for(plan.units,
               [&](int64_t first, int64_t last) { simd::apply_nsc(problem, plan, affine, first, last); });
}

#define RENORM_INSTANTIATE(T)                                        \
  template void forward<T>(const Forward<T>&, const ParallelFor&);   \
  template void backward<T>(const Backward<T>&, const ParallelFor&); \
  template void inference<T>(const Inference<T>&, const ParallelFor&);
RENORM_INSTANTIATE(float)
RENORM_INSTANTIATE(double)
RENORM_INSTANTIATE(BFloat16)
#undef RENORM_INSTANTIATE

}  // namespace renorm::kernels
