#include "data/stroke_drawing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/portable_math.h"

namespace renorm::data {
namespace {

constexpr int kSegments = 8;  // a curve is drawn as a line through nine points
constexpr double kPlaceLow = 0.15;
constexpr double kPlaceHigh = 0.85;
constexpr double kPointJitter = 0.05;
constexpr double kRotation = 0.15;
constexpr double kScale = 0.1;
constexpr double kShear = 0.15;
constexpr double kTranslation = 0.04;
constexpr double kThinnest = 0.02;
constexpr double kThickest = 0.045;
constexpr double kSharpness = 0.75;  // of the edge: how much a pixel's value falls over a pixel's side
constexpr double kCentre = 0.5;
constexpr double kLift = 0.5;  // added before a value becomes a byte
constexpr double kUnit = 127.5;

// A linear map about the image's centre and a move.
struct Distortion {
  double xx, xy, yx, yy;
  Point move;

  Point apply(Point p) const {
    const double x = p.x - kCentre, y = p.y - kCentre;
    return {kCentre + (xx * x + xy * y) + move.x, kCentre + (yx * x + yy * y) + move.y};
  }
};

// Scales the axes, shears, turns, moves.
Distortion draw_distortion(double jitter, RandomStream& stream) {
  const SinCos turn = portable_sin_cos(jitter * (kRotation * stream.normal()));
  const double scale_x = portable_exp(jitter * (kScale * stream.normal()));
  const double scale_y = portable_exp(jitter * (kScale * stream.normal()));
  const double shear = jitter * (kShear * stream.normal());
  Distortion map{};
  map.xx = turn.cos * scale_x;
  map.xy = (turn.cos * shear - turn.sin) * scale_y;
  map.yx = turn.sin * scale_x;
  map.yy = (turn.sin * shear + turn.cos) * scale_y;
  map.move.x = jitter * (kTranslation * stream.normal());
  map.move.y = jitter * (kTranslation * stream.normal());
  return map;
}

std::vector<Stroke> move_points(std::vector<Stroke> shape, double jitter, RandomStream& stream) {
  for (Stroke& stroke : shape) {
    for (Point& point : stroke.points) {
      point.x += jitter * (kPointJitter * stream.normal());
      point.y += jitter * (kPointJitter * stream.normal());
    }
  }
  return shape;
}

Point on_curve(const Stroke& stroke, int step) {
  const double t = static_cast<double>(step) / kSegments;
  const double a = (1.0 - t) * (1.0 - t), b = 2.0 * t * (1.0 - t), c = t * t;
  const Point* p = stroke.points;
  return {a * p[0].x + b * p[1].x + c * p[2].x, a * p[0].y + b * p[1].y + c * p[2].y};
}

double squared_distance_to_segment(Point p, Point from, Point along, double squared_length) {
  const double x = p.x - from.x, y = p.y - from.y;
  double t = 0.0;
  if (squared_length > 0.0) {
    t = std::min(1.0, std::max(0.0, (x * along.x + y * along.y) / squared_length));
  }
  const double off_x = x - t * along.x, off_y = y - t * along.y;
  return off_x * off_x + off_y * off_y;
}

// Rows or columns whose centres lie within [low, high]; first > last if there are none.
struct Range {
  int64_t first;
  int64_t last;
};

Range centres_within(double low, double high, int64_t size) {
  const double side = static_cast<double>(size);
  const double first = std::max(0.0, std::ceil(low * side - 0.5));
  const double last = std::min(side - 1.0, std::floor(high * side - 0.5));
  if (!(first <= last)) return {0, -1};
  return {static_cast<int64_t>(first), static_cast<int64_t>(last)};
}

}  // namespace

uint8_t to_byte(double value) {
  const double scaled = std::floor((value + kLift) * kUnit + 0.5);
  return static_cast<uint8_t>(std::min(255.0, std::max(0.0, scaled)));
}

double ink_of_byte(uint8_t byte) {
  static const uint8_t blank = to_byte(0.0);
  return byte <= blank ? 0.0 : static_cast<double>(byte) / kUnit - kLift;
}

std::vector<Stroke> stroke_class(const StrokesOptions& options, int64_t label) {
  RandomStream stream(options.seed, Purpose::kStrokeClass, static_cast<uint64_t>(label));
  std::vector<Stroke> shape(static_cast<size_t>(options.strokes));
  for (Stroke& stroke : shape) {
    for (Point& point : stroke.points) {
      point.x = stream.uniform(kPlaceLow, kPlaceHigh);
      point.y = stream.uniform(kPlaceLow, kPlaceHigh);
    }
  }
  return shape;
}

StrokePainter::StrokePainter(const StrokesOptions& options)
    : options_(options), squared_distance_(static_cast<size_t>(options.size * options.size)) {
  for (int64_t i = 0; i < options.size; ++i) {
    centres_.push_back((static_cast<double>(i) + 0.5) / static_cast<double>(options.size));
  }
}

void StrokePainter::add_segment(Point from, Point to, double reach) {
  const Point along{to.x - from.x, to.y - from.y};
  const double squared_length = along.x * along.x + along.y * along.y;
  const Range rows =
      centres_within(std::min(from.y, to.y) - reach, std::max(from.y, to.y) + reach, options_.size);
  const Range columns =
      centres_within(std::min(from.x, to.x) - reach, std::max(from.x, to.x) + reach, options_.size);
  for (int64_t row = rows.first; row <= rows.last; ++row) {
    double* line = squared_distance_.data() + row * options_.size;
    for (int64_t column = columns.first; column <= columns.last; ++column) {
      const Point centre{centres_[static_cast<size_t>(column)], centres_[static_cast<size_t>(row)]};
      line[column] = std::min(line[column], squared_distance_to_segment(centre, from, along, squared_length));
    }
  }
}

void StrokePainter::add_stroke(const Stroke& stroke, double reach) {
  Point from = on_curve(stroke, 0);
  for (int step = 1; step <= kSegments; ++step) {
    const Point to = on_curve(stroke, step);
    add_segment(from, to, reach);
    from = to;
  }
}

void StrokePainter::paint(const std::vector<Stroke>& shape, RandomStream& stream, uint8_t* pixels) {
  std::vector<Stroke> moved = move_points(shape, options_.jitter, stream);
  const Distortion distortion = draw_distortion(options_.jitter, stream);
  const double half_width = stream.uniform(kThinnest, kThickest);
  const double ink = stream.uniform(options_.ink, 1.0);
  const double slope = static_cast<double>(options_.size) * kSharpness;
  // Farther away than this a pixel has the value 0.
  const double reach = half_width + 0.5 / slope;
  std::fill(squared_distance_.begin(), squared_distance_.end(), std::numeric_limits<double>::infinity());
  for (Stroke& stroke : moved) {
    for (Point& point : stroke.points) point = distortion.apply(point);
    add_stroke(stroke, reach);
  }
  for (size_t i = 0; i < squared_distance_.size(); ++i) {
    double value = 0.0;
    if (squared_distance_[i] < reach * reach) {
      const double cover = 0.5 + (half_width - std::sqrt(squared_distance_[i])) * slope;
      value = ink * std::min(1.0, std::max(0.0, cover));
    }
    if (options_.noise > 0.0) value += options_.noise * stream.normal();
    pixels[i] = to_byte(value);
  }
}

}  // namespace renorm::data
