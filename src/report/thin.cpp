#include "report/thin.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace renorm::report {
namespace {

using record::CurvePoint;
using record::TrainingPoint;

template <typename Point>
using Quantity = double (*)(const Point&);

constexpr Quantity<CurvePoint> kOfCurve[] = {[](const CurvePoint& point) { return point.mean; }};

// The limits r_max and d_max are ramps: any of their points will do.
constexpr Quantity<TrainingPoint> kOfTraining[] = {
    [](const TrainingPoint& point) { return point.loss; },
    [](const TrainingPoint& point) { return point.r_clipped; },
    [](const TrainingPoint& point) { return point.d_clipped; }};

// Marks the extremes of [first, last). Values that are not numbers are none.
template <typename Point>
void mark_extremes(const std::vector<Point>& points, size_t first, size_t last, Quantity<Point> quantity,
                   std::vector<bool>* kept) {
  size_t min = last;
  size_t max = last;
  for (size_t i = first; i < last; ++i) {
    const double value = quantity(points[i]);
    if (std::isnan(value)) continue;
    if (min == last || value < quantity(points[min])) min = i;
    if (max == last || value > quantity(points[max])) max = i;
  }
  if (min == last) return;
  (*kept)[min] = true;
  (*kept)[max] = true;
}

template <typename Point, size_t count>
void thin(const Quantity<Point> (&quantities)[count], size_t max_points, std::vector<Point>* points) {
  const size_t size = points->size();
  if (size <= max_points) return;
  std::vector<bool> kept(size, false);
  kept.front() = true;
  kept.back() = true;
  const size_t parts = std::max<size_t>(1, (max_points - 2) / (2 * count));
  for (size_t part = 0; part < parts; ++part) {
    for (const Quantity<Point> quantity : quantities) {
      mark_extremes(*points, part * size / parts, (part + 1) * size / parts, quantity, &kept);
    }
  }
  std::vector<Point> rest;
  for (size_t i = 0; i < size; ++i) {
    if (kept[i]) rest.push_back(std::move((*points)[i]));
  }
  *points = std::move(rest);
}

}  // namespace

record::Results thinned(const record::Results& results, size_t max_points) {
  record::Results fewer = results;
  for (record::Arm& arm : fewer.arms) {
    thin(kOfCurve, max_points, &arm.curve);
    thin(kOfTraining, max_points, &arm.training);
  }
  return fewer;
}

}  // namespace renorm::report
