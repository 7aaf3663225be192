// Generated problems: the parameters of a case, its arrays, and the kernel arguments made from them.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/problem.h"
#include "support/buffer.h"
#include "support/random.h"

namespace renorm::test {

struct Case {
  kernels::Layout layout = kernels::Layout::kNcs;
  kernels::Shape shape = {1, 1, 1};
  kernels::Groups groups = {1, 1, 1, 1};
  kernels::Activation activation = kernels::Activation::kNone;
  double eps = 1e-5;
  double r_max = 1.0;
  double d_max = 0.0;
  bool has_weight = true;
  bool has_bias = true;
  bool has_running = true;
  bool has_residual = false;
  bool misaligned = false;
  double mean_over_std = 1.0;  // how far the channels' means are from 0, in standard deviations
  uint64_t seed = 0;           // of the values
};

inline int64_t values_of(const Case& c) { return c.shape.n * c.shape.c * c.shape.s; }
inline int64_t statistics_of(const Case& c) { return c.groups.count * c.shape.c; }
inline bool has_mask(const Case& c) { return c.has_residual && c.activation == kernels::Activation::kRelu; }

// Calls visit(offset) for every value of one channel in one group.
template <typename Visit>
void for_each_value(const Case& c, int64_t group, int64_t channel, const Visit& visit) {
  const bool channels_last = c.layout == kernels::Layout::kNsc;
  for (int64_t j = 0; j < c.groups.size; ++j) {
    const int64_t n = group * c.groups.group_step + j * c.groups.example_step;
    for (int64_t s = 0; s < c.shape.s; ++s) {
      visit(channels_last ? (n * c.shape.s + s) * c.shape.c + channel
                          : (n * c.shape.c + channel) * c.shape.s + s);
    }
  }
}

// A case of at most about 60,000 values. Draws cover every layout, shape class, grouping, option and limit.
Case draw_case(Random& random);

// At most about 200 values: for tests that use many cases or read every value of a case many times.
Case draw_tiny_case(Random& random);

std::string describe(const Case& c);

// All arrays of a case. Optional inputs that the case does not have are absent.
template <typename T>
struct Arrays {
  using P = kernels::Stat<T>;
  Buffer<T> x, dy, residual;
  Buffer<P> weight, bias, running_mean, running_std;
  Buffer<T> y, dx, dresidual;
  Buffer<uint8_t> mask;
  Buffer<P> batch_mean, batch_mean_low, batch_std, r, d, dweight, dbias;
};

// Arrays with random inputs and unwritten outputs. Channels differ in mean and spread, examples are
// shifted against each other (so that groups differ), and the averages are off by a factor
// exp(U(-1, 1)) in the standard deviation and by up to 2 standard deviations in the mean.
// running_mean and running_std are always present: inference requires them.
template <typename T>
Arrays<T> draw_arrays(const Case& c);

// The same inputs in double, for the reference; outputs unwritten.
template <typename T>
Arrays<double> widen(const Case& c, const Arrays<T>& arrays);

template <typename T>
kernels::Forward<T> forward_problem(const Case& c, Arrays<T>& a) {
  return {c.layout,
          c.shape,
          c.groups,
          c.activation,
          c.eps,
          c.r_max,
          c.d_max,
          a.x.data(),
          a.weight.data(),
          a.bias.data(),
          c.has_running ? a.running_mean.data() : nullptr,
          c.has_running ? a.running_std.data() : nullptr,
          a.y.data(),
          a.batch_mean.data(),
          a.batch_mean_low.data(),
          a.batch_std.data(),
          a.r.data(),
          a.d.data(),
          a.residual.data(),
          has_mask(c) ? a.mask.data() : nullptr};
}

// The backward of the forward whose statistics and mask are in the arrays. dresidual is computed if the case
// has a residual.
template <typename T>
kernels::Backward<T> backward_problem(const Case& c, Arrays<T>& a) {
  return {c.layout,
          c.shape,
          c.groups,
          c.activation,
          false,
          a.x.data(),
          a.dy.data(),
          a.weight.data(),
          a.bias.data(),
          a.batch_mean.data(),
          a.batch_mean_low.data(),
          a.batch_std.data(),
          a.r.data(),
          a.d.data(),
          a.dx.data(),
          a.dweight.data(),
          a.dbias.data(),
          has_mask(c) ? a.mask.data() : nullptr,
          c.has_residual ? a.dresidual.data() : nullptr};
}

// The gradient of inference: the averages are the statistics of one group, r and d are absent. A mask is that
// of the training forward.
template <typename T>
kernels::Backward<T> inference_backward_problem(const Case& c, Arrays<T>& a) {
  kernels::Backward<T> problem = backward_problem(c, a);
  problem.groups = kernels::contiguous_groups(c.shape.n, c.shape.n);
  problem.frozen = true;
  problem.batch_mean = a.running_mean.data();
  problem.batch_mean_low = nullptr;
  problem.batch_std = a.running_std.data();
  problem.r = nullptr;
  problem.d = nullptr;
  return problem;
}

template <typename T>
kernels::Inference<T> inference_problem(const Case& c, Arrays<T>& a) {
  return {c.layout,        c.shape,          c.activation,          a.x.data(),
          a.weight.data(), a.bias.data(),    a.running_mean.data(), a.running_std.data(),
          a.y.data(),      a.residual.data()};
}

}  // namespace renorm::test
