// Plans a problem, supplies its absent arguments, and runs its phases. The loops are in the other files of
// this folder.
#include "kernels/kernels.h"

#include <algorithm>
#include <memory>

#include "kernels/simd/internal.h"

namespace renorm::kernels {
namespace {

// Outputs of at least this size bypass the cache: they would only evict the data that is read next.
constexpr int64_t kStreamBytes = int64_t{8} << 20;
// Channels-first blocks span about this many neighbouring values of an example.
constexpr int64_t kBlockValues = 1024;
// Channels-first rows shorter than this, and not of whole cache lines, are taken as runs. The limit is higher
// where outputs bypass the cache, because lines that two rows share are slow there.
constexpr int64_t kShortRow = 128;
constexpr int64_t kShortStreamedRow = 320;
constexpr int64_t kLineBytes = 64;
// Channels-last units: the minimum number of rows, and the maximum number of units per group.
constexpr int64_t kMinRows = 256;
constexpr int64_t kMaxBlocks = 64;
// Channels folded by one task.
constexpr int64_t kFoldChannels = 512;
// With this many groups or more, each is gathered and written before the next is read.
constexpr int64_t kGroupwise = 4;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t values_of(const Shape& shape) { return shape.n * shape.c * shape.s; }

template <typename T>
bool streams(const Shape& shape) {
  return values_of(shape) * static_cast<int64_t>(sizeof(T)) >= kStreamBytes;
}

template <typename T>
simd::NcsPlan plan_ncs(const Shape& shape, const Groups& groups) {
  const bool stream = streams<T>(shape);
  const bool whole_lines = shape.s * static_cast<int64_t>(sizeof(T)) % kLineBytes == 0;
  const bool runs = !whole_lines && shape.s < (stream ? kShortStreamedRow : kShortRow);
  const int64_t block =
      std::clamp<int64_t>(ceil_div(kBlockValues, shape.s), 1, std::min(simd::kMaxBlock, shape.c));
  const int64_t blocks = ceil_div(shape.c, block);
  return {block, blocks, groups.count * blocks, stream, runs};
}

template <typename T>
simd::NscPlan plan_nsc(const Shape& shape, const Groups& groups) {
  const int64_t all = groups.size * shape.s;
  const int64_t rows = std::max(kMinRows, ceil_div(all, kMaxBlocks));
  const int64_t blocks = ceil_div(all, rows);
  return {rows, blocks, groups.count * blocks, streams<T>(shape)};
}

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
  const simd::NscPlan plan = plan_nsc<T>(shape, problem.groups);
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
void backward_nsc(const Backward<T>& problem, const simd::NscPlan& plan, const simd::Sums& sums,
                  const ParallelFor& parallel_for) {
  const Shape& shape = problem.shape;
  AffineArrays<Stat<T>> affine_arrays(problem.groups.count * shape.c);
  GradientArrays<Stat<T>> gradient_arrays(problem.groups.count * shape.c);
  const simd::Affine<Stat<T>> affine = affine_arrays.get();
  const simd::Gradient<Stat<T>> gradient = gradient_arrays.get();
  for (int64_t group = 0; group < problem.groups.count; ++group) {
    simd::affine_backward_nsc(problem, affine, group);
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
        if (problem.dx == nullptr && problem.dresidual == nullptr) return;
        simd::apply_backward_nsc(problem, plan, affine, gradient, first, last);
      });
}

// dweight = sum over groups of r / batch_std * sum dy (x - mean) + d * sum dy, dbias = sum over groups of sum
// dy. The sums of group g start at g * stride.
template <typename T>
void reduce_groups(const Backward<T>& problem, const simd::Sums& sums, int64_t stride) {
  const int64_t c = problem.shape.c;
  for (int64_t channel = 0; channel < c; ++channel) {
    double dweight = 0.0;
    double dbias = 0.0;
    for (int64_t group = 0; group < problem.groups.count; ++group) {
      const int64_t at = group * c + channel;
      const double sum_dy = sums.first[group * stride + channel];
      const double r_over_std =
          static_cast<double>(problem.r[at]) / static_cast<double>(problem.batch_std[at]);
      dweight +=
          r_over_std * sums.second[group * stride + channel] + static_cast<double>(problem.d[at]) * sum_dy;
      dbias += sum_dy;
    }
    if (problem.dweight != nullptr) problem.dweight[channel] = static_cast<Stat<T>>(dweight);
    if (problem.dbias != nullptr) problem.dbias[channel] = static_cast<Stat<T>>(dbias);
  }
}

// Brings a problem into the form that the loops expect: a residual only where ReLU's mask depends on it, and
// dresidual only together with it. Returns the memory of a residual of zeros that problem refers to, or null.
template <typename T>
std::unique_ptr<T[]> settle_residual(Backward<T>* problem, const ParallelFor& parallel_for) {
  if (problem->activation == Activation::kRelu) {
    if (problem->residual != nullptr || problem->dresidual == nullptr) return nullptr;
    std::unique_ptr<T[]> zeros = allocate<T>(values_of(problem->shape));
    std::fill_n(zeros.get(), values_of(problem->shape), T{});
    problem->residual = zeros.get();
    return zeros;
  }
  if (problem->dresidual != nullptr) {
    const int64_t example = problem->shape.c * problem->shape.s;
    parallel_for(problem->shape.n, [&](int64_t first, int64_t last) {
      std::copy_n(problem->dy + first * example, (last - first) * example,
                  problem->dresidual + first * example);
    });
  }
  problem->residual = nullptr;
  problem->dresidual = nullptr;
  return nullptr;
}

// Whether aligned lines of one output are aligned in the other. Either may be null.
bool same_alignment(const void* a, const void* b) {
  constexpr uintptr_t kLine = kLineBytes;
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
  if (problem.layout == Layout::kNsc) {
    forward_nsc(problem, parallel_for);
    return;
  }
  const simd::NcsPlan plan = plan_ncs<T>(problem.shape, problem.groups);
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
  const std::unique_ptr<T[]> zeros = settle_residual(&problem, parallel_for);
  const bool may_stream = same_alignment(problem.dx, problem.dresidual);
  if (problem.layout == Layout::kNsc) {
    simd::NscPlan plan = plan_nsc<T>(shape, problem.groups);
    plan.stream = plan.stream && may_stream;
    SumArrays sums(plan.units * shape.c);
    backward_nsc(problem, plan, sums.get(), parallel_for);
    reduce_groups(problem, sums.get(), plan.blocks * shape.c);
    return;
  }
  simd::NcsPlan plan = plan_ncs<T>(shape, problem.groups);
  plan.stream = plan.stream && may_stream;
  SumArrays sums(statistics);
  parallel_for(plan.units, [&](int64_t first, int64_t last) {
    plan.runs ? simd::backward_ncs_runs(problem, plan, sums.get(), first, last)
              : simd::backward_ncs(problem, plan, sums.get(), first, last);
  });
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
  if (given.layout == Layout::kNcs) {
    const bool stream = streams<T>(shape);
    parallel_for(shape.n * shape.c, [&](int64_t first, int64_t last) {
      simd::inference_ncs(given, affine, stream, first, last);
    });
    return;
  }
  const Groups whole = contiguous_groups(shape.n, shape.n);
  Forward<T> problem{};
  problem.shape = shape;
  problem.groups = whole;
  problem.activation = given.activation;
  problem.x = given.x;
  problem.y = given.y;
  problem.residual = given.residual;
  const simd::NscPlan plan = plan_nsc<T>(shape, whole);
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
