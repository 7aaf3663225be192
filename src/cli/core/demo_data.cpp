#include "cli/core/demo_data.h"

#include <ATen/CPUGeneratorImpl.h>

namespace renorm::cli {
namespace {

constexpr int64_t kStrokes = 3;
constexpr double kMargin = 4.0;         // pixels between a stroke's ends and the border, before it moves
constexpr double kShift = 1.5;          // standard deviation, pixels, of the whole image
constexpr double kBend = 0.7;           // the same, of each end
constexpr double kSquaredWidth = 1.2;   // of the stroke's Gaussian profile
constexpr double kLeastContrast = 0.7;  // up to kLeastContrast + kContrastRange
constexpr double kContrastRange = 0.6;

// [..., 2] -> two tensors [..., 1, 1] that meet [side, side].
std::pair<torch::Tensor, torch::Tensor> coordinates(const torch::Tensor& points) {
  const torch::Tensor wide = points.unsqueeze(-1).unsqueeze(-1);
  return {wide.select(-3, 0), wide.select(-3, 1)};
}

}  // namespace

StrokeImages::StrokeImages(uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  strokes_ = torch::rand({kClasses, kStrokes, 2, 2}, generator) * (kSide - 2 * kMargin) + kMargin;
}

torch::Tensor StrokeImages::draw(const torch::Tensor& labels, at::Generator generator) const {
  const int64_t n = labels.size(0);
  const torch::Tensor ends = strokes_.index_select(0, labels) +
                             torch::randn({n, 1, 1, 2}, generator) * kShift +
                             torch::randn({n, kStrokes, 2, 2}, generator) * kBend;
  const torch::Tensor start = ends.select(2, 0), direction = ends.select(2, 1) - start;
  const torch::Tensor pixels = torch::arange(kSide, torch::kFloat);
  const auto [start_x, start_y] = coordinates(start);
  const auto [direction_x, direction_y] = coordinates(direction);
  const torch::Tensor from_x = pixels - start_x, from_y = pixels.unsqueeze(1) - start_y;
  // The nearest point of the stroke, as a part of its length.
  const torch::Tensor part =
      ((from_x * direction_x + from_y * direction_y) / (direction_x.square() + direction_y.square() + 1e-6))
          .clamp(0, 1);
  const torch::Tensor distance =
      (from_x - part * direction_x).square() + (from_y - part * direction_y).square();
  const torch::Tensor ink = (-distance / kSquaredWidth).exp().amax(1, true);
  const torch::Tensor contrast = torch::rand({n, 1, 1, 1}, generator) * kContrastRange + kLeastContrast;
  return ink * contrast + torch::randn(ink.sizes(), generator) * kNoise;
}

torch::Tensor mixed_labels(int64_t n, at::Generator generator) {
  return torch::randint(StrokeImages::kClasses, {n}, generator, torch::kLong);
}

torch::Tensor biased_labels(int64_t n, int64_t few, at::Generator generator) {
  const torch::Tensor classes =
      torch::randperm(StrokeImages::kClasses, generator, torch::kLong).slice(0, 0, few);
  return classes.index_select(0, torch::randint(few, {n}, generator, torch::kLong));
}

}  // namespace renorm::cli
