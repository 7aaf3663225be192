// How a problem is divided into units. A plan depends on the problem alone, never on the number of threads,
// so that results do not either.
#pragma once

#include <cstdint>

#include "kernels/problem.h"
#include "kernels/simd/internal.h"

namespace renorm::kernels::simd {

// The data that a problem moves: arrays of its shape, inputs and outputs, and the size of one value.
struct Traffic {
  Shape shape;
  int64_t arrays;
  int64_t value_bytes;
  bool writes_mask = false;
};

template <typename T>
Traffic traffic_of(const Forward<T>& problem) {
  return {problem.shape, problem.residual == nullptr ? 2 : 3, sizeof(T), problem.mask != nullptr};
}
template <typename T>
Traffic traffic_of(const Inference<T>& problem) {
  return {problem.shape, problem.residual == nullptr ? 2 : 3, sizeof(T)};
}
template <typename T>
Traffic traffic_of(const Backward<T>& problem) {
  return {problem.shape, problem.dresidual == nullptr ? 3 : 4, sizeof(T)};
}

// Whether outputs bypass the cache.
bool streams(const Traffic& traffic);

NcsPlan plan_ncs(const Traffic& traffic, const Groups& groups);
// The plan of a backward, whose outputs bypass the cache only if they may.
NcsPlan plan_ncs_backward(const Traffic& traffic, const Groups& groups, bool may_stream);

// For channels-first problems with long rows whose channels and groups are too few to share work by.
bool has_few_channels(const Shape& shape, const Groups& groups);
PiecePlan plan_pieces(const Traffic& traffic, const Groups& groups);

NscPlan plan_nsc(const Traffic& traffic, const Groups& groups);

// For channels-last problems whose groups have at most kMaxSmallRows rows.
bool has_small_groups(const Shape& shape, const Groups& groups);
SmallPlan plan_small(const Shape& shape, const Groups& groups);

}  // namespace renorm::kernels::simd
