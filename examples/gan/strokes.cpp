#include "strokes.h"

namespace {

constexpr int64_t kSide = 20;
constexpr int64_t kCurves = 3;
constexpr int64_t kPoints = 12;  // on a curve
constexpr double kJitter = 0.04;

}  // namespace

Strokes::Strokes(int64_t classes) {
  torch::Generator generator = at::detail::createCPUGenerator(/*seed_val=*/1);
  shapes_ = 0.15 + 0.7 * torch::rand({classes, kCurves, 3, 2}, generator);
  const torch::Tensor centres = (torch::arange(kSide) + 0.5) / kSide;
  pixels_ = torch::stack(torch::meshgrid({centres, centres}, "ij"), 2).view({-1, 2});
}

Characters Strokes::draw(int64_t count) const {
  const torch::Tensor labels = torch::randint(shapes_.size(0), {count}, torch::kLong);
  const torch::Tensor shapes = shapes_.index_select(0, labels);
  const torch::Tensor points = shapes + kJitter * torch::randn(shapes.sizes());
  const torch::Tensor t = torch::linspace(0, 1, kPoints).view({1, 1, kPoints, 1});
  const auto control = [&](int64_t i) { return points.select(2, i).unsqueeze(2); };
  const torch::Tensor curve =
      (1 - t).square() * control(0) + 2 * t * (1 - t) * control(1) + t.square() * control(2);
  // Distance of each pixel to the nearest point of the curves.
  const torch::Tensor distance =
      std::get<0>(torch::cdist(pixels_.unsqueeze(0).expand({count, -1, -1}), curve.flatten(1, 2)).min(2));
  const torch::Tensor thickness = 0.035 + 0.015 * torch::rand({count, 1});
  const torch::Tensor ink = ((thickness - distance) * kSide + 0.5).clamp(0, 1);
  return {(2 * ink - 1).view({count, 1, kSide, kSide}), labels};
}
