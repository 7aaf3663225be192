// The parts of a training step, made of the passes that the whole step is made of.
#include "kernels/parts.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/simd/internal.h"
#include "kernels/simd/plan.h"

namespace renorm::kernels {
namespace {

int64_t values_of(const Shape& shape) { return shape.n * shape.c * shape.s; }

Groups whole(const Shape& shape) { return contiguous_groups(shape.n, shape.n); }

// Mean and sum of squared distances of a growing set of values.
class Moments {
 public:
  void add(double values, double mean, double m2) {
    const double share = values / (count_ + values);
    const double delta = mean - mean_;
    mean_ += delta * share;
    m2_ += m2 + delta * delta * (count_ * share);
    count_ += values;
  }
  double count() const { return count_; }
  double mean() const { return mean_; }
  double m2() const { return m2_; }

 private:
  double count_ = 0.0;
  double mean_ = 0.0;
  double m2_ = 0.0;
};

// The units of a gathering pass: the sums of block b of channel c are number
// b * block_step + c * channel_step.
struct Blocks {
  int64_t count;
  int64_t values;  // of a channel in a block; the last block may have fewer
  int64_t block_step;
  int64_t channel_step;

  int64_t at(int64_t block, int64_t channel) const { return block * block_step + channel * channel_step; }
};
Blocks blocks_of(const simd::NscPlan& plan, const Shape& shape) {
  return {plan.blocks, plan.rows, shape.c, 1};
}
Blocks blocks_of(const simd::PiecePlan& plan) { return {plan.pieces, plan.values, 1, plan.pieces}; }

class SumArrays {
 public:
  explicit SumArrays(int64_t count) : data_(static_cast<size_t>(2 * count)), count_(count) {}
  simd::Sums get() { return {data_.data(), data_.data() + count_}; }

 private:
  std::vector<double> data_;
  int64_t count_;
};

template <typename P>
class AffineArrays {
 public:
  explicit AffineArrays(int64_t count) : data_(static_cast<size_t>(3 * count)), count_(count) {}
  simd::Affine<P> get() { return {data_.data(), data_.data() + count_, data_.data() + 2 * count_}; }

 private:
  std::vector<P> data_;
  int64_t count_;
};

// Apply<T> or ApplyBackward<T> as a problem of one group, with all absent arguments supplied.
template <typename T>
class Supplied {
 public:
  template <class Problem>
  explicit Supplied(const Problem& given)
      : ones_(static_cast<size_t>(given.shape.c), Stat<T>{1}),
        zeros_(static_cast<size_t>(given.shape.c), Stat<T>{0}) {
    problem.layout = given.layout;
    problem.shape = given.shape;
    problem.groups = whole(given.shape);
    problem.activation = given.activation;
    problem.x = given.x;
    problem.weight = given.weight != nullptr ? given.weight : ones_.data();
    problem.bias = given.bias != nullptr ? given.bias : zeros_.data();
    problem.batch_mean = given.batch_mean;
    problem.batch_mean_low = given.batch_mean_low != nullptr ? given.batch_mean_low : zeros_.data();
    problem.batch_std = given.batch_std;
    problem.r = given.r != nullptr ? given.r : ones_.data();
    problem.d = given.d != nullptr ? given.d : zeros_.data();
  }
  Supplied(const Supplied&) = delete;
  Supplied& operator=(const Supplied&) = delete;

  const Stat<T>* ones() const { return ones_.data(); }

  Backward<T> problem{};

 private:
  std::vector<Stat<T>> ones_;
  std::vector<Stat<T>> zeros_;
};

void merge_blocks(const simd::Sums& sums, const Blocks& blocks, int64_t values, int64_t c, double* mean,
                  double* m2) {
  for (int64_t channel = 0; channel < c; ++channel) {
    Moments moments;
    for (int64_t block = 0; block < blocks.count; ++block) {
      const int64_t first = block * blocks.values;
      const int64_t at = blocks.at(block, channel);
      moments.add(static_cast<double>(std::min(blocks.values, values - first)), sums.first[at],
                  sums.second[at]);
    }
    mean[channel] = moments.mean();
    m2[channel] = moments.m2();
  }
}

// Adds up the blocks, and corrects sums.dy_x from the rounded to the full mean.
template <typename T>
void add_blocks(const Backward<T>& problem, const simd::Sums& gathered, const Blocks& blocks,
                const GradientSums<double>& sums) {
  for (int64_t channel = 0; channel < problem.shape.c; ++channel) {
    double dy = 0.0;
    double dy_x = 0.0;
    for (int64_t block = 0; block < blocks.count; ++block) {
      dy += gathered.first[blocks.at(block, channel)];
      dy_x += gathered.second[blocks.at(block, channel)];
    }
    sums.dy[channel] = dy;
    sums.dy_x[channel] = dy_x - static_cast<double>(problem.batch_mean_low[channel]) * dy;
  }
}

}  // namespace

template <typename T>
void statistics(const Statistics<T>& given, const ParallelFor& parallel_for) {
  const Shape& shape = given.shape;
  Forward<T> problem{};
  problem.layout = given.layout;
  problem.shape = shape;
  problem.groups = whole(shape);
  problem.x = given.x;
  const int64_t values = shape.n * shape.s;
  if (given.layout == Layout::kNsc) {
    const simd::NscPlan plan = simd::plan_nsc(simd::traffic_of(problem), problem.groups);
    SumArrays sums(plan.units * shape.c);
    parallel_for(plan.units, [&](int64_t first, int64_t last) {
      simd::gather_nsc(problem, plan, sums.get(), first, last);
    });
    merge_blocks(sums.get(), blocks_of(plan, shape), values, shape.c, given.mean, given.m2);
    return;
  }
  const simd::PiecePlan plan = simd::plan_pieces(simd::traffic_of(problem), problem.groups);
  SumArrays sums(plan.units);
  parallel_for(plan.units, [&](int64_t first, int64_t last) {
    simd::gather_pieces(problem, plan, sums.get(), first, last);
  });
  merge_blocks(sums.get(), blocks_of(plan), values, shape.c, given.mean, given.m2);
}

// The coefficients are those that the backward pass recomputes, to the bit; inference applies them.
template <typename T>
void apply(const Apply<T>& given, const ParallelFor& parallel_for) {
  if (values_of(given.shape) == 0) return;
  const Supplied<T> supplied(given);
  AffineArrays<Stat<T>> arrays(given.shape.c);
  const simd::Affine<Stat<T>> affine = arrays.get();
  simd::affine_backward(supplied.problem, affine, /*group=*/0);
  inference<T>({given.layout, given.shape, given.activation, given.x, affine.scale, affine.shift, affine.mean,
                supplied.ones(), given.y},
               parallel_for);
}

template <typename T>
void backward_sums(const ApplyBackward<T>& given, const GradientSums<double>& sums,
                   const ParallelFor& parallel_for) {
  const Shape& shape = given.shape;
  if (values_of(shape) == 0) {
    std::fill_n(sums.dy, shape.c, 0.0);
    std::fill_n(sums.dy_x, shape.c, 0.0);
    return;
  }
  Supplied<T> supplied(given);
  Backward<T>& problem = supplied.problem;
  problem.dy = given.dy;
  AffineArrays<Stat<T>> arrays(shape.c);
  const simd::Affine<Stat<T>> affine = arrays.get();
  simd::affine_backward(problem, affine, /*group=*/0);
  if (given.layout == Layout::kNsc) {
    const simd::NscPlan plan = simd::plan_nsc(simd::traffic_of(problem), problem.groups);
    SumArrays gathered(plan.units * shape.c);
    parallel_for(plan.units, [&](int64_t first, int64_t last) {
      simd::gather_backward_nsc(problem, plan, affine, gathered.get(), first, last);
    });
    add_blocks(problem, gathered.get(), blocks_of(plan, shape), sums);
    return;
  }
  const simd::PiecePlan plan = simd::plan_pieces(simd::traffic_of(problem), problem.groups);
  SumArrays gathered(plan.units);
  parallel_for(plan.units, [&](int64_t first, int64_t last) {
    simd::gather_backward_pieces(problem, plan, affine, gathered.get(), first, last);
  });
  add_blocks(problem, gathered.get(), blocks_of(plan), sums);
}

template <typename T>
void backward_apply(const ApplyBackward<T>& given, const GradientSums<const double>& sums, double count,
                    T* dx, const ParallelFor& parallel_for) {
  using P = Stat<T>;
  const Shape& shape = given.shape;
  if (values_of(shape) == 0) return;
  Supplied<T> supplied(given);
  Backward<T>& problem = supplied.problem;
  problem.dy = given.dy;
  problem.dx = dx;
  AffineArrays<P> affine_arrays(shape.c);
  AffineArrays<P> gradient_arrays(shape.c);
  const simd::Affine<P> affine = affine_arrays.get();
  const simd::Affine<P> three = gradient_arrays.get();
  const simd::Gradient<P> gradient{three.mean, three.scale, three.shift};
  simd::affine_backward(problem, affine, /*group=*/0);
  for (int64_t c = 0; c < shape.c; ++c) {
    const double inv_std = 1.0 / static_cast<double>(problem.batch_std[c]);
    const double slope = -sums.dy_x[c] / count * inv_std * inv_std;
    gradient.scale[c] =
        static_cast<P>(static_cast<double>(problem.weight[c]) * static_cast<double>(problem.r[c]) * inv_std);
    gradient.slope[c] = static_cast<P>(slope);
    gradient.shift[c] =
        static_cast<P>(-sums.dy[c] / count - slope * static_cast<double>(problem.batch_mean_low[c]));
  }
  if (given.layout == Layout::kNsc) {
    const simd::NscPlan plan = simd::plan_nsc(simd::traffic_of(problem), problem.groups);
    parallel_for(plan.units, [&](int64_t first, int64_t last) {
      simd::apply_backward_nsc(problem, plan, affine, gradient, first, last);
    });
    return;
  }
  const simd::PiecePlan plan = simd::plan_pieces(simd::traffic_of(problem), problem.groups);
  parallel_for(plan.units, [&](int64_t first, int64_t last) {
    simd::apply_backward_pieces(problem, plan, affine, gradient, first, last);
  });
}

template <typename P>
double merge(const Merge<P>& p) {
  const int64_t row_size = statistics_size(p.c);
  const auto clip = [](P value, P min, P max) {  // NaN stays NaN
    value = value < min ? min : value;
    return value > max ? max : value;
  };
  const P r_max = static_cast<P>(p.r_max);
  const P r_min = static_cast<P>(1.0 / p.r_max);
  const P d_max = static_cast<P>(p.d_max);
  double count = 0.0;
  for (int64_t part = 0; part < p.parts; ++part) count += p.rows[part * row_size];
  for (int64_t c = 0; c < p.c; ++c) {
    Moments moments;
    for (int64_t part = 0; part < p.parts; ++part) {
      const double* row = p.rows + part * row_size;
      if (row[0] != 0.0) moments.add(row[0], row[1 + c], row[1 + p.c + c]);
    }
    const double mean = count == 0.0 ? std::nan("") : moments.mean();
    p.batch_mean[c] = static_cast<P>(mean);
    p.batch_mean_low[c] = static_cast<P>(mean - static_cast<double>(p.batch_mean[c]));
    p.batch_std[c] = std::sqrt(static_cast<P>(moments.m2() / count + p.eps));
    p.r[c] = 1;
    p.d[c] = 0;
    if (p.running_std == nullptr) continue;
    const P distance = static_cast<P>(mean - static_cast<double>(p.running_mean[c]));
    p.r[c] = clip(p.batch_std[c] / p.running_std[c], r_min, r_max);
    p.d[c] = clip(distance / p.running_std[c], -d_max, d_max);
  }
  return count;
}

template double merge<float>(const Merge<float>&);
template double merge<double>(const Merge<double>&);

#define RENORM_INSTANTIATE(T)                                                                               \
  template void statistics<T>(const Statistics<T>&, const ParallelFor&);                                    \
  template void apply<T>(const Apply<T>&, const ParallelFor&);                                              \
  template void backward_sums<T>(const ApplyBackward<T>&, const GradientSums<double>&, const ParallelFor&); \
  template void backward_apply<T>(const ApplyBackward<T>&, const GradientSums<const double>&, double, T*,   \
                                  const ParallelFor&);
RENORM_INSTANTIATE(float)
RENORM_INSTANTIATE(double)
RENORM_INSTANTIATE(BFloat16)
#undef RENORM_INSTANTIATE

}  // namespace renorm::kernels
