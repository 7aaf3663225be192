// The problem of a normalization kernel as plain data: shapes, groups, arguments.
#pragma once

#include <cstdint>
#include <functional>

namespace renorm::kernels {

// The upper half of a float; arithmetic is done in float.
struct BFloat16 {
  uint16_t bits;
};

// The type of parameters and statistics for data of type T.
template <typename T>
struct StatOf {
  using type = float;
};
template <>
struct StatOf<double> {
  using type = double;
};
template <typename T>
using Stat = typename StatOf<T>::type;

// kNcs: x[n][c][s], channels first. kNsc: x[n][s][c], channels last; dense data is kNsc with s = 1.
enum class Layout { kNcs, kNsc };

enum class Activation { kNone, kRelu };

// n examples of c channels at s positions.
struct Shape {
  int64_t n;
  int64_t c;
  int64_t s;
};

// How a batch is divided into normalization groups of equal size.
// Example j of group g is number g * group_step + j * example_step of the batch.
struct Groups {
  int64_t count;
  int64_t size;
  int64_t group_step;
  int64_t example_step;
};

// Group g = examples [g * size, (g + 1) * size). size must divide n; an empty batch has no groups.
inline Groups contiguous_groups(int64_t n, int64_t size) { return {n == 0 ? 0 : n / size, size, size, 1}; }

// Group g = examples g, g + count, g + 2 count, ... size must divide n; an empty batch has no groups.
inline Groups strided_groups(int64_t n, int64_t size) {
  const int64_t count = n == 0 ? 0 : n / size;
  return {count, size, 1, count};
}

// A mask has one bit per value of a tensor, in memory order, lowest bit first: 1 where the ReLU stops the
// gradient. Seven zero bytes follow, so that eight can be read from any place of it.
inline int64_t mask_bytes(int64_t values) { return (values + 7) / 8 + 7; }

// Calls body(first, last) on pieces that cover [0, count) once, in any order and on any threads, and
// returns when all are done. Kernels start no threads themselves: the caller passes this in. How it
// divides the range never changes a result.
using Body = std::function<void(int64_t first, int64_t last)>;
using ParallelFor = std::function<void(int64_t count, const Body& body)>;

// Training forward, for each group g and channel c over the group's examples and positions:
//   batch_mean = mean(x)            batch_std = sqrt(eps + mean((x - batch_mean)^2))
//   r = clip(batch_std / running_std, 1 / r_max, r_max)
//   d = clip((batch_mean - running_mean) / running_std, -d_max, d_max)
//   y = activation(weight * ((x - batch_mean) / batch_std * r + d) + bias + residual)
// x, residual and y have the layout; y overlaps neither of the others, residual may be x. The rest is [c] or,
// for statistics, [groups.count][c].
template <typename T>
struct Forward {
  Layout layout;
  Shape shape;
  Groups groups;
  Activation activation;
  double eps;
  double r_max;  // >= 1, may be infinite
  double d_max;  // >= 0, may be infinite
  const T* x;
  const Stat<T>* weight;        // null: 1
  const Stat<T>* bias;          // null: 0
  const Stat<T>* running_mean;  // null together with running_std: r = 1, d = 0
  const Stat<T>* running_std;
  T* y;
  Stat<T>* batch_mean;
  Stat<T>* batch_mean_low;  // rounding error of batch_mean: the mean is batch_mean + batch_mean_low
  Stat<T>* batch_std;
  Stat<T>* r;
  Stat<T>* d;
  const T* residual = nullptr;  // null: none
  uint8_t* mask = nullptr;      // null: not written; only with kRelu and a residual
};

// Gradient of the training forward with r and d held constant (or, if `frozen`, with batch_mean and
// batch_std constant too, which is the gradient of inference). With kRelu a mask is required if the forward
// had a residual. Without a mask it is recomputed from x, with the forward's rounding. dx and dresidual have
// the layout of x and dy and overlap nothing.
template <typename T>
struct Backward {
  Layout layout;
  Shape shape;
  Groups groups;
  Activation activation;
  bool frozen;
  const T* x;
  const T* dy;
  const Stat<T>* weight;  // null: 1
  const Stat<T>* bias;    // null: 0; read only for kRelu
  const Stat<T>* batch_mean;
  const Stat<T>* batch_mean_low;  // null: 0
  const Stat<T>* batch_std;
  const Stat<T>* r;               // null: 1
  const Stat<T>* d;               // null: 0
  T* dx;                          // null: not computed
  Stat<T>* dweight;               // [c], null: not computed
  Stat<T>* dbias;                 // [c], null: not computed
  const uint8_t* mask = nullptr;  // null: none; read only for kRelu
  T* dresidual = nullptr;         // null: not computed; dy where the mask passes it; with kRelu needs a mask
};

// y = activation(weight * (x - running_mean) / running_std + bias + residual)
template <typename T>
struct Inference {
  Layout layout;
  Shape shape;
  Activation activation;
  const T* x;
  const Stat<T>* weight;  // null: 1
  const Stat<T>* bias;    // null: 0
  const Stat<T>* running_mean;
  const Stat<T>* running_std;
  T* y;
  const T* residual = nullptr;  // null: none
};

}  // namespace renorm::kernels
