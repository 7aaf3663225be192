// How a problem is divided into units. A plan depends on the problem alone, never on the number of threads,
// so that results do not either.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/problem.h"
#include "kernels/simd/internal.h"

namespace renorm::kernels::simd {

// Whether outputs of this shape bypass the cache. value_bytes is the size of a value of x.
bool streams(const Shape& shape, size_t value_bytes);

NcsPlan plan_ncs(const Shape& shape, const Groups& groups, size_t value_bytes);

// For channels-first problems whose channels and groups are too few to share work by.
bool has_few_channels(const Shape& shape, const Groups& groups);
PiecePlan plan_pieces(const Shape& shape, const Groups& groups, size_t value_bytes);

NscPlan plan_nsc(const Shape& shape, const Groups& groups, size_t value_bytes);

// For channels-last problems whose groups have at most kMaxSmallRows rows.
bool has_small_groups(const Shape& shape, const Groups& groups);
SmallPlan plan_small(const Shape& shape, const Groups& groups);

}  // namespace renorm::kernels::simd
