// The SIMD functions that kernels.cpp calls. Each takes a range of independent units, and no unit's result
// depends on how the range was divided. Parameters, statistics and averages are never null here: kernels.cpp
// supplies ones and zeros where the problem has none.
#pragma once

#include <cstdint>

#include "kernels/problem.h"

namespace renorm::kernels::simd {

// Output = activation((x - mean) * scale + shift), per channel.
template <typename P>
struct Affine {
  P* mean;
  P* scale;
  P* shift;
};

// The maximum number of channels of a unit of NcsPlan.
constexpr int64_t kMaxBlock = 64;

// Channels-first: a unit is `block` neighbouring channels of one group. Units are numbered block by block,
// then group by group.
struct NcsPlan {
  int64_t block;
  int64_t blocks;  // per group
  int64_t units;
  bool stream;  // outputs bypass the cache
  bool runs;    // rows are short: the functions for runs take the units
  bool single;  // data is in cache: rows are gathered and written one by one
};

// Channels-first with few channels: a unit is a piece of `values` values of one channel of one group. Units
// are numbered piece by piece, then channel by channel, then group by group.
struct PiecePlan {
  int64_t values;
  int64_t pieces;  // per channel and group
  int64_t units;
  bool stream;
};

// Channels-last: a unit is `rows` rows (n x s of a group, in order) of all channels.
struct NscPlan {
  int64_t rows;
  int64_t blocks;  // per group
  int64_t units;
  bool stream;
};

// The maximum number of rows of a group of SmallPlan.
constexpr int64_t kMaxSmallRows = 16;

// Channels-last with few rows per group: a unit is `channels` neighbouring channels of `groups` groups. Units
// are numbered by channels, then by groups.
struct SmallPlan {
  int64_t groups;
  int64_t channels;
  int64_t parts;   // of the channels
  int64_t blocks;  // of the groups
};

// Sums of a gathering pass per channel: [units][c] channels-last, [groups][c] channels-first, [units] for
// pieces.
struct Sums {
  double* first;   // mean, or sum of dy; of SmallPlan's units, dweight
  double* second;  // sum of squared distances from the mean, or sum of dy * (x - batch_mean); or dbias
};

// dx = scale * (dy + (x - batch_mean) * slope + shift), per group and channel: [groups][c] each. The bracket
// comes first because its terms may cancel.
template <typename P>
struct Gradient {
  P* scale;
  P* slope;
  P* shift;
};

#define RENORM_DECLARE(T)                                                                                    \
  void forward_ncs(const Forward<T>& problem, const NcsPlan& plan, int64_t first, int64_t last);             \
  void backward_ncs(const Backward<T>& problem, const NcsPlan& plan, const Sums& sums, int64_t first,        \
                    int64_t last);                                                                           \
  void forward_ncs_runs(const Forward<T>& problem, const NcsPlan& plan, int64_t first, int64_t last);        \
  void backward_ncs_runs(const Backward<T>& problem, const NcsPlan& plan, const Sums& sums, int64_t first,   \
                         int64_t last);                                                                      \
  void gather_pieces(const Forward<T>& problem, const PiecePlan& plan, const Sums& sums, int64_t first,      \
                     int64_t last);                                                                          \
  void fold_pieces(const Forward<T>& problem, const PiecePlan& plan, const Sums& sums,                       \
                   const Affine<Stat<T>>& affine);                                                           \
  void apply_pieces(const Forward<T>& problem, const PiecePlan& plan, const Affine<Stat<T>>& affine,         \
                    int64_t first, int64_t last);                                                            \
  void gather_backward_pieces(const Backward<T>& problem, const PiecePlan& plan,                             \
                              const Affine<Stat<T>>& affine, const Sums& sums, int64_t first, int64_t last); \
  void fold_backward_pieces(const Backward<T>& problem, const PiecePlan& plan, const Sums& pieces,           \
                            const Sums& sums, const Gradient<Stat<T>>& gradient);                            \
  void apply_backward_pieces(const Backward<T>& problem, const PiecePlan& plan,                              \
                             const Affine<Stat<T>>& affine, const Gradient<Stat<T>>& gradient,               \
                             int64_t first, int64_t last);                                                   \
  void inference_ncs(const Inference<T>& problem, const Affine<Stat<T>>& affine, bool stream, int64_t first, \
                     int64_t last);                                                                          \
  void inference_ncs_runs(const Inference<T>& problem, const NcsPlan& plan, const Affine<Stat<T>>& affine,   \
                          int64_t first, int64_t last);                                                      \
  void gather_nsc(const Forward<T>& problem, const NscPlan& plan, const Sums& sums, int64_t first,           \
                  int64_t last);                                                                             \
  void fold_nsc(const Forward<T>& problem, const NscPlan& plan, const Sums& sums,                            \
                const Affine<Stat<T>>& affine, int64_t group, int64_t first_channel, int64_t last_channel);  \
  void apply_nsc(const Forward<T>& problem, const NscPlan& plan, const Affine<Stat<T>>& affine,              \
                 int64_t first, int64_t last);                                                               \
  void affine_backward(const Backward<T>& problem, const Affine<Stat<T>>& affine, int64_t group);            \
  void gather_backward_nsc(const Backward<T>& problem, const NscPlan& plan, const Affine<Stat<T>>& affine,   \
                           const Sums& sums, int64_t first, int64_t last);                                   \
  void fold_backward_nsc(const Backward<T>& problem, const NscPlan& plan, const Sums& sums,                  \
                         const Gradient<Stat<T>>& gradient, int64_t group, int64_t first_channel,            \
                         int64_t last_channel);                                                              \
  void apply_backward_nsc(const Backward<T>& problem, const NscPlan& plan, const Affine<Stat<T>>& affine,    \
                          const Gradient<Stat<T>>& gradient, int64_t first, int64_t last);                   \
  void forward_nsc_small(const Forward<T>& problem, const SmallPlan& plan, int64_t first, int64_t last);     \
  void backward_nsc_small(const Backward<T>& problem, const SmallPlan& plan, const Sums& sums,               \
                          int64_t first, int64_t last);

RENORM_DECLARE(float)
RENORM_DECLARE(double)
RENORM_DECLARE(BFloat16)
#undef RENORM_DECLARE

}  // namespace renorm::kernels::simd
