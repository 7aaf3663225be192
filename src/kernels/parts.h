// The parts of a training step, for one normalization group that is divided among processes. Each process
// computes statistics and sums of its share, and applies those of the whole group. The fast functions have
// the results of reference/parts.h within rounding, however `parallel_for` divides the work.
#pragma once

#include "kernels/problem.h"

namespace renorm::kernels {

// For each channel over all examples and positions, at least one value:
//   mean = mean(x)     m2 = sum((x - mean)^2)
template <typename T>
struct Statistics {
  Layout layout;
  Shape shape;
  const T* x;
  double* mean;  // [c]
  double* m2;    // [c]
};

// y = activation(weight * ((x - batch_mean) / batch_std * r + d) + bias). All but x and y are [c]; y overlaps
// nothing.
template <typename T>
struct Apply {
  Layout layout;
  Shape shape;
  Activation activation;
  const T* x;
  const Stat<T>* weight;  // null: 1
  const Stat<T>* bias;    // null: 0
  const Stat<T>* batch_mean;
  const Stat<T>* batch_mean_low;  // null: 0
  const Stat<T>* batch_std;
  const Stat<T>* r;  // null: 1
  const Stat<T>* d;  // null: 0
  T* y;
};

// The backward pass of Apply with r and d held constant. With kRelu the mask is recomputed from x, with the
// rounding of Apply. dl_dy is dy where the mask passes it, else 0.
template <typename T>
struct ApplyBackward {
  Layout layout;
  Shape shape;
  Activation activation;
  const T* x;
  const T* dy;
  const Stat<T>* weight;  // null: 1
  const Stat<T>* bias;    // null: 0; read only for kRelu
  const Stat<T>* batch_mean;
  const Stat<T>* batch_mean_low;  // null: 0
  const Stat<T>* batch_std;
  const Stat<T>* r;  // null: 1
  const Stat<T>* d;  // null: 0
};

// Sums over the values of a channel, [c] each: of dl_dy and of dl_dy * (x - batch_mean).
template <typename Value>
struct GradientSums {
  Value* dy;
  Value* dy_x;
};

// The size of a row of statistics: the number of values, mean [c], m2 [c].
inline int64_t statistics_size(int64_t channels) { return 2 * channels + 1; }

template <typename T>
void statistics(const Statistics<T>& problem, const ParallelFor& parallel_for);

template <typename T>
void apply(const Apply<T>& problem, const ParallelFor& parallel_for);

template <typename T>
void backward_sums(const ApplyBackward<T>& problem, const GradientSums<double>& sums,
                   const ParallelFor& parallel_for);

// dx from the sums over the whole group and the number of its values:
//   dx = weight * r / batch_std * (dl_dy - sums.dy / count - (x - batch_mean) * slope)
//   slope = sums.dy_x / (count * batch_std^2)
template <typename T>
void backward_apply(const ApplyBackward<T>& problem, const GradientSums<const double>& sums, double count,
                    T* dx, const ParallelFor& parallel_for);

// Statistics of a group from those of its parts by Chan's formula, in the order of the rows; then r and d.
template <typename P>
struct Merge {
  const double* rows;  // [parts][statistics_size(c)]; zeros for a part without values
  int64_t parts;
  int64_t c;
  double eps;
  double r_max;           // >= 1, may be infinite
  double d_max;           // >= 0, may be infinite
  const P* running_mean;  // null together with running_std: r = 1, d = 0
  const P* running_std;
  P* batch_mean;
  P* batch_mean_low;
  P* batch_std;
  P* r;
  P* d;
};

// Returns the number of values. Without any, all results are NaN.
template <typename P>
double merge(const Merge<P>& problem);

}  // namespace renorm::kernels
