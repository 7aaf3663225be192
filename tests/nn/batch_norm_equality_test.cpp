// With r_max = 1 and d_max = 0 the layer is torch's batchnorm, whatever the averages are.
#include "support.h"

namespace renorm::testing {
namespace {

using BatchNormEquality = Seeded;

struct Case {
  std::vector<int64_t> shape;
  at::ScalarType dtype;
  at::MemoryFormat format;
  bool affine;
};

std::vector<Case> cases(const std::vector<int64_t>& shape, at::MemoryFormat channels_last) {
  std::vector<Case> all;
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const bool affine : {true, false}) {
      all.push_back({shape, dtype, at::MemoryFormat::Contiguous, affine});
      if (channels_last != at::MemoryFormat::Contiguous) all.push_back({shape, dtype, channels_last, affine});
    }
  }
  return all;
}

template <typename Renorm, typename Norm>
void expect_equal(const Case& c) {
  const int64_t channels = c.shape[1];
  Renorm renorm(BatchRenormOptions(channels).affine(c.affine).eps(1e-3).clip(ClipSchedule::batch_norm()));
  Norm norm(torch::nn::BatchNormOptions(channels).affine(c.affine).eps(1e-3));
  renorm->to(c.dtype);
  norm->to(c.dtype);
  randomize(*renorm);
  if (c.affine) {
    const torch::NoGradGuard no_grad;
    norm->weight.copy_(renorm->weight);
    norm->bias.copy_(renorm->bias);
  }
  const auto x = (torch::randn(c.shape, c.dtype) * 2.0 + 0.5).contiguous(c.format);
  const auto dy = torch::randn(c.shape, c.dtype).contiguous(c.format);
  const auto x1 = x.clone().set_requires_grad(true);
  const auto x2 = x.clone().set_requires_grad(true);
  const auto y1 = renorm->forward(x1);
  const auto y2 = norm->forward(x2);
  y1.backward(dy);
  y2.backward(dy);

  const double tolerance = c.dtype == at::kDouble ? kDoubleTolerance : kFloatTolerance;
  EXPECT_TRUE(y1.is_contiguous(c.format));
  EXPECT_LE(relative_error(y1, y2), tolerance);
  EXPECT_LE(relative_error(x1.grad(), x2.grad()), tolerance);
  if (c.affine) {
    EXPECT_LE(relative_error(renorm->weight.grad(), norm->weight.grad()), tolerance);
    EXPECT_LE(relative_error(renorm->bias.grad(), norm->bias.grad()), tolerance);
  }
}

TEST_F(BatchNormEquality, HoldsForDenseInput) {
  for (const Case& c : cases({37, 19}, at::MemoryFormat::Contiguous)) {
    expect_equal<BatchRenorm1d, torch::nn::BatchNorm1d>(c);
  }
}

TEST_F(BatchNormEquality, HoldsForSequences) {
  for (const Case& c : cases({5, 7, 23}, at::MemoryFormat::Contiguous)) {
    expect_equal<BatchRenorm1d, torch::nn::BatchNorm1d>(c);
  }
}

TEST_F(BatchNormEquality, HoldsForImagesInBothLayouts) {
  for (const Case& c : cases({6, 13, 9, 11}, at::MemoryFormat::ChannelsLast)) {
    expect_equal<BatchRenorm2d, torch::nn::BatchNorm2d>(c);
  }
}

TEST_F(BatchNormEquality, HoldsForVolumesInBothLayouts) {
  for (const Case& c : cases({2, 5, 4, 7, 6}, at::MemoryFormat::ChannelsLast3d)) {
    expect_equal<BatchRenorm3d, torch::nn::BatchNorm3d>(c);
  }
}

TEST_F(BatchNormEquality, EndsWhenTheLimitsGrow) {
  const auto x = torch::randn({8, 4}) * 3.0 + 1.0;
  BatchRenorm1d closed(BatchRenormOptions(4).clip(ClipSchedule::batch_norm()));
  BatchRenorm1d open(BatchRenormOptions(4).clip(ClipSchedule::constant(3.0, 5.0)));
  EXPECT_GT(relative_error(open->forward(x), closed->forward(x)), 0.1);
}

}  // namespace
}  // namespace renorm::testing
