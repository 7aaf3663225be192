// One drawn character. The arithmetic is IEEE basic operations and square roots only: the same bits
// everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "data/strokes.h"

namespace renorm::data {

// Coordinates are fractions of the image's side.
struct Point {
  double x = 0.0;
  double y = 0.0;
};

// Control points of a quadratic Bezier curve.
struct Stroke {
  Point points[3];
};

// The byte of a pixel's value, and the ink of a pixel that was drawn without noise.
uint8_t to_byte(double value);
double ink_of_byte(uint8_t byte);

// The shape that all images of a class share.
std::vector<Stroke> stroke_class(const StrokesOptions& options, int64_t label);

// Draws images one after the other; keeps its memory.
class StrokePainter {
 public:
  explicit StrokePainter(const StrokesOptions& options);

  // One image of size x size bytes. All randomness comes from `stream`, in a fixed order.
  void paint(const std::vector<Stroke>& shape, RandomStream& stream, uint8_t* pixels);

 private:
  // Lowers the squared distance of all pixel centres within `reach` of the segment.
  void add_segment(Point from, Point to, double reach);
  void add_stroke(const Stroke& stroke, double reach);

  StrokesOptions options_;
  std::vector<double> centres_;           // of rows and columns
  std::vector<double> squared_distance_;  // per pixel
};

}  // namespace renorm::data
