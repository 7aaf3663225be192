// Small grey images of drawn strokes, made on the spot: the demonstration's data.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace renorm::cli {

// A class is three strokes at fixed places. An image of it moves and bends them, varies the contrast and adds
// noise, so that no two images are the same.
class StrokeImages {
 public:
  static constexpr int64_t kClasses = 12;
  static constexpr int64_t kSide = 20;
  static constexpr double kNoise = 0.3;

  // The seed decides what the classes look like.
  explicit StrokeImages(uint64_t seed);

  // [n, 1, kSide, kSide] for labels [n].
  torch::Tensor draw(const torch::Tensor& labels, at::Generator generator) const;

 private:
  torch::Tensor strokes_;  // [class, stroke, end, (x, y)] in pixels
};

// Labels [n] drawn from all classes, or from `few` classes that are drawn first.
torch::Tensor mixed_labels(int64_t n, at::Generator generator);
torch::Tensor biased_labels(int64_t n, int64_t few, at::Generator generator);

}  // namespace renorm::cli
