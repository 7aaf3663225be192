// Drawn characters, as many as one likes.
#pragma once

#include <torch/torch.h>

#include <cstdint>

// Images [n, 1, 20, 20] with values from -1 to 1, and their classes.
struct Characters {
  torch::Tensor images;
  torch::Tensor labels;
};

// A class is three random curves; an image moves their control points and varies their thickness. The shapes
// of the classes are always the same; the images come from LibTorch's default generator.
class Strokes {
 public:
  explicit Strokes(int64_t classes);
  Characters draw(int64_t count) const;

 private:
  torch::Tensor shapes_;  // [classes, curves, control points, 2]
  torch::Tensor pixels_;  // [pixels, 2]: centres
};
