// Clip telemetry of a layer.
#include <cmath>

#include "support.h"

namespace renorm::testing {
namespace {

using Telemetry = Seeded;

// Rows -a and a have mean 0 and standard deviation a (eps is negligible), so that r and d are set by hand:
// channel      0            1               2               3
// r            3 (above)    1/4 (below)     1               1
// d            0            0               1.5 (outside)   -0.5
BatchRenorm1d hand_made(Statistics statistics) {
  BatchRenorm1d layer(
      BatchRenormOptions(4).eps(1e-12).statistics(statistics).clip(ClipSchedule::constant(2.0, 1.0)));
  layer->running_mean.copy_(torch::tensor({0.0, 0.0, -3.0, 1.0}));
  layer->running_std.copy_(torch::tensor({1.0, 4.0, 2.0, 2.0}));
  return layer;
}

torch::Tensor hand_made_batch() {
  const auto row = torch::tensor({3.0F, 1.0F, 2.0F, 2.0F});
  return torch::stack({row, -row});
}

void expect_hand_made(const ClipTelemetry& telemetry, int64_t values) {
  EXPECT_EQ(telemetry.values, values);
  EXPECT_DOUBLE_EQ(telemetry.r_clipped_above, 0.25);
  EXPECT_DOUBLE_EQ(telemetry.r_clipped_below, 0.25);
  EXPECT_DOUBLE_EQ(telemetry.d_clipped, 0.25);
  EXPECT_NEAR(telemetry.r.mean, 1.3125, kFloatTolerance);
  EXPECT_NEAR(telemetry.r.std, std::sqrt((9.0 + 0.0625 + 2.0) / 4 - 1.3125 * 1.3125), kFloatTolerance);
  EXPECT_NEAR(telemetry.r.min, 0.25, kFloatTolerance);
  EXPECT_NEAR(telemetry.r.max, 3.0, kFloatTolerance);
  EXPECT_NEAR(telemetry.d.mean, 0.25, kFloatTolerance);
  EXPECT_NEAR(telemetry.d.std, std::sqrt((2.25 + 0.25) / 4 - 0.0625), kFloatTolerance);
  EXPECT_NEAR(telemetry.d.min, -0.5, kFloatTolerance);
  EXPECT_NEAR(telemetry.d.max, 1.5, kFloatTolerance);
}

TEST_F(Telemetry, CountsWhatTheLimitsClip) {
  auto layer = hand_made(Statistics::kImmediate);
  layer->forward(hand_made_batch());
  expect_hand_made(layer->clip_telemetry(), 4);
}

TEST_F(Telemetry, CountsEveryForwardAndGroupIfDeferred) {
  auto layer = hand_made(Statistics::kDeferred);
  layer->options.group_size(2);
  layer->forward(hand_made_batch());
  layer->forward(torch::cat({hand_made_batch(), hand_made_batch()}));
  expect_hand_made(layer->clip_telemetry(), 12);
  layer->discard();
  expect_hand_made(layer->clip_telemetry(), 12);
}

// d = 1e9 + {0, 1, 2, 3} in each of two forwards: the squares of such values have no digits left for a spread
// of 1.
TEST_F(Telemetry, KeepsTheStandardDeviationOfValuesFarFromZero) {
  BatchRenorm1d layer(
      BatchRenormOptions(4).statistics(Statistics::kDeferred).clip(ClipSchedule::unlimited()));
  layer->to(torch::kDouble);
  layer->running_mean.copy_(-(torch::arange(4, torch::kDouble) + 1e9));
  const auto batch = torch::tensor({-1.0, 1.0}, torch::kDouble).unsqueeze(1).expand({2, 4});
  layer->forward(batch);
  layer->forward(batch);
  const ClipTelemetry telemetry = layer->clip_telemetry();
  EXPECT_DOUBLE_EQ(telemetry.d.mean, 1e9 + 1.5);
  EXPECT_DOUBLE_EQ(telemetry.d.std, std::sqrt(1.25));
  EXPECT_NEAR(telemetry.r.std, 0.0, kDoubleTolerance);
}

TEST_F(Telemetry, IsEmptyAtFirstAndAfterClearing) {
  auto layer = hand_made(Statistics::kImmediate);
  EXPECT_EQ(layer->clip_telemetry().values, 0);
  EXPECT_EQ(layer->clip_telemetry().r.mean, 0.0);
  layer->forward(hand_made_batch());
  layer->clear_clip_telemetry();
  EXPECT_EQ(layer->clip_telemetry().values, 0);
  EXPECT_EQ(layer->clip_telemetry().r.max, 0.0);
}

TEST_F(Telemetry, ClipsNothingWithoutLimits) {
  auto layer = hand_made(Statistics::kImmediate);
  layer->options.clip(ClipSchedule::unlimited());
  layer->forward(hand_made_batch());
  const ClipTelemetry telemetry = layer->clip_telemetry();
  EXPECT_EQ(telemetry.r_clipped_above + telemetry.r_clipped_below + telemetry.d_clipped, 0.0);
  EXPECT_NEAR(telemetry.r.mean, 1.3125, kFloatTolerance);
}

}  // namespace
}  // namespace renorm::testing
