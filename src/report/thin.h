// Results with few enough points for a page.
#pragma once

#include <cstddef>

#include "record/results.h"

namespace renorm::report {

constexpr size_t kMaxPoints = 2000;  // of a curve

// The results with at most `max_points` points per curve of evaluations and of training. Points are left out,
// never changed. A curve keeps its first and last point and, of each of many equal parts, the points with the
// minimum and the maximum of every quantity that the page draws.
record::Results thinned(const record::Results& results, size_t max_points);

}  // namespace renorm::report
