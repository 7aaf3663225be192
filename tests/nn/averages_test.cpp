// Updates of the moving averages.
#include <cmath>

#include "support.h"

namespace renorm::testing {
namespace {

using Averages = Seeded;

constexpr double kEps = 1e-3;
constexpr double kMomentum = 0.1;
constexpr int64_t kChannels = 5;

// Mean over the groups of [groups, examples, channels, positions] of the groups' statistics.
struct Moments {
  torch::Tensor mean;
  torch::Tensor std;
};

Moments group_statistics(const torch::Tensor& groups) {
  const auto x = groups.to(torch::kDouble);
  const auto mean = x.mean({1, 3});
  const auto centred = x - mean.unsqueeze(1).unsqueeze(3);
  return {mean.mean(0), (centred.square().mean({1, 3}) + kEps).sqrt().mean(0)};
}

Moments whole(const torch::Tensor& x) { return group_statistics(x.flatten(2).unsqueeze(0)); }

Moments contiguous(const torch::Tensor& x, int64_t size) {
  const auto flat = x.flatten(2);
  return group_statistics(flat.reshape({x.size(0) / size, size, x.size(1), flat.size(2)}));
}

Moments strided(const torch::Tensor& x, int64_t size) {
  const auto flat = x.flatten(2);
  return group_statistics(flat.reshape({size, x.size(0) / size, x.size(1), flat.size(2)}).transpose(0, 1));
}

// sum over steps t of momentum (1 - momentum)^(T - 1 - t) value[t], and what remains of the start.
torch::Tensor closed_form(const std::vector<torch::Tensor>& values, double start) {
  const auto steps = static_cast<int64_t>(values.size());
  auto sum = torch::full({kChannels}, start * std::pow(1.0 - kMomentum, steps), torch::kDouble);
  for (int64_t t = 0; t < steps; ++t) sum += kMomentum * std::pow(1.0 - kMomentum, steps - 1 - t) * values[t];
  return sum;
}

void expect_closed_form(const BatchRenorm2d& layer, const std::vector<Moments>& seen, double tolerance) {
  std::vector<torch::Tensor> means;
  std::vector<torch::Tensor> stds;
  for (const Moments& s : seen) {
    means.push_back(s.mean);
    stds.push_back(s.std);
  }
  EXPECT_LE(relative_error(layer->running_mean, closed_form(means, 0.0)), tolerance);
  EXPECT_LE(relative_error(layer->running_std, closed_form(stds, 1.0)), tolerance);
  EXPECT_EQ(layer->step(), static_cast<int64_t>(seen.size()));
}

BatchRenormOptions base_options() {
  return BatchRenormOptions(kChannels).eps(kEps).momentum(kMomentum).clip(ClipSchedule::constant(2.0, 1.0));
}

torch::Tensor batch(int64_t examples) {
  return torch::randn({examples, kChannels, 3, 2}, torch::kDouble) *
             uniform({1, kChannels, 1, 1}, 0.5, 3.0, torch::kDouble) +
         uniform({1, kChannels, 1, 1}, -2.0, 2.0, torch::kDouble);
}

TEST_F(Averages, EqualTheClosedFormAfterASequenceOfSteps) {
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    BatchRenorm2d layer(base_options());
    layer->to(dtype);
    std::vector<Moments> seen;
    for (int step = 0; step < 30; ++step) {
      const auto x = batch(8).to(dtype);
      layer->forward(x);
      seen.push_back(whole(x));
    }
    expect_closed_form(layer, seen, dtype == at::kDouble ? kDoubleTolerance : kFloatTolerance);
  }
}

TEST_F(Averages, MoveByTheMeanOverContiguousGroups) {
  BatchRenorm2d layer(base_options().group_size(4));
  layer->to(torch::kDouble);
  std::vector<Moments> seen;
  for (int step = 0; step < 10; ++step) {
    const auto x = batch(12);
    layer->forward(x);
    seen.push_back(contiguous(x, 4));
  }
  expect_closed_form(layer, seen, kDoubleTolerance);
}

TEST_F(Averages, MoveByTheMeanOverStridedGroups) {
  BatchRenorm2d layer(base_options().group_size(2).grouping(Grouping::kStrided));
  layer->to(torch::kDouble);
  std::vector<Moments> seen;
  for (int step = 0; step < 10; ++step) {
    const auto x = batch(6);
    layer->forward(x);
    seen.push_back(strided(x, 2));
  }
  expect_closed_form(layer, seen, kDoubleTolerance);
}

TEST_F(Averages, MoveOncePerCommitByTheMeanOverAllGroupsIfDeferred) {
  BatchRenorm2d layer(base_options().group_size(2).statistics(Statistics::kDeferred));
  layer->to(torch::kDouble);
  std::vector<Moments> seen;
  for (int step = 0; step < 6; ++step) {
    // Forwards of 1, 2 and 3 groups: every group weighs the same.
    std::vector<torch::Tensor> forwards = {batch(2), batch(4), batch(6)};
    for (const auto& x : forwards) {
      const Snapshot before(*layer);
      layer->forward(x);
      EXPECT_TRUE(torch::equal(layer->running_mean, before.running_mean));
      EXPECT_TRUE(torch::equal(layer->running_std, before.running_std));
      EXPECT_EQ(layer->step(), before.step);
    }
    EXPECT_TRUE(layer->commit());
    EXPECT_FALSE(layer->commit());
    seen.push_back(contiguous(torch::cat(forwards), 2));
  }
  expect_closed_form(layer, seen, kDoubleTolerance);
}

TEST_F(Averages, ForgetWhatIsDiscarded) {
  BatchRenorm2d layer(base_options().statistics(Statistics::kDeferred));
  const Snapshot before(*layer);
  layer->forward(batch(4).to(torch::kFloat));
  layer->discard();
  EXPECT_FALSE(layer->commit());
  EXPECT_TRUE(torch::equal(layer->running_mean, before.running_mean));
  EXPECT_EQ(layer->step(), 0);
  const auto x = batch(4).to(torch::kFloat);
  layer->forward(x);
  EXPECT_TRUE(layer->commit());
  expect_closed_form(layer, {whole(x)}, kFloatTolerance);
}

TEST_F(Averages, AreNotCommittedIfImmediate) {
  BatchRenorm2d layer(base_options());
  EXPECT_FALSE(layer->commit());
  layer->forward(batch(4).to(torch::kFloat));
  const Snapshot before(*layer);
  EXPECT_FALSE(layer->commit());
  EXPECT_TRUE(Snapshot(*layer) == before);
}

TEST_F(Averages, DropWhatWasDeferredWhenStatisticsBecomeImmediate) {
  BatchRenorm2d layer(base_options().statistics(Statistics::kDeferred));
  layer->forward(batch(4).to(torch::kFloat));
  layer->options.statistics(Statistics::kImmediate);
  EXPECT_FALSE(layer->commit());
  const auto x = batch(4).to(torch::kFloat);
  layer->forward(x);
  expect_closed_form(layer, {whole(x)}, kFloatTolerance);
}

TEST_F(Averages, MoveInPlaceInTheRegisteredBuffers) {
  BatchRenorm2d layer(base_options());
  const void* mean = layer->running_mean.data_ptr();
  const void* std = layer->running_std.data_ptr();
  layer->forward(batch(4).to(torch::kFloat));
  EXPECT_EQ(layer->running_mean.data_ptr(), mean);
  EXPECT_EQ(layer->running_std.data_ptr(), std);
  const auto buffers = layer->named_buffers();
  EXPECT_TRUE(buffers["running_mean"].is_same(layer->running_mean));
  EXPECT_TRUE(buffers["running_std"].is_same(layer->running_std));
  EXPECT_EQ(buffers["num_batches_tracked"].item<int64_t>(), 1);
  EXPECT_FALSE(layer->running_mean.requires_grad());
}

TEST_F(Averages, MoveInABufferThatIsNotContiguous) {
  BatchRenorm2d layer(base_options());
  const auto storage = torch::zeros({kChannels, 2});
  layer->running_mean.set_data(storage.select(1, 0));
  const auto x = batch(4).to(torch::kFloat);
  layer->forward(x);
  expect_closed_form(layer, {whole(x)}, kFloatTolerance);
  EXPECT_TRUE(torch::equal(storage.select(1, 0), layer->running_mean));
  EXPECT_EQ(storage.select(1, 1).abs().max().item<float>(), 0.0F);
}

// Only a moving average of the standard deviation gives E[r] = 1. The 512,000 values of r with a standard
// deviation of 0.42 have a standard error of 6e-4, and the variation of the average adds 9e-4.
TEST_F(Averages, MakeTheExpectationOfROneForFourExamples) {
  constexpr double kMonteCarloTolerance = 5e-3;
  constexpr int64_t kManyChannels = 256;
  BatchRenorm1d layer(BatchRenormOptions(kManyChannels).clip(ClipSchedule::unlimited()));
  const torch::NoGradGuard no_grad;
  for (int step = 0; step < 1'000; ++step) layer->forward(torch::randn({4, kManyChannels}) * 3.0 + 0.5);
  layer->clear_clip_telemetry();
  for (int step = 0; step < 2'000; ++step) layer->forward(torch::randn({4, kManyChannels}) * 3.0 + 0.5);
  const ClipTelemetry telemetry = layer->clip_telemetry();
  EXPECT_EQ(telemetry.values, 2'000 * kManyChannels);
  EXPECT_NEAR(telemetry.r.mean, 1.0, kMonteCarloTolerance);
  EXPECT_NEAR(telemetry.d.mean, 0.0, kMonteCarloTolerance);
}

// Averages of 16 channels at 10,000 standard deviations, after `steps` batches whose means have this standard
// deviation. In units of the data's standard deviation, as the distance from the mean of these means.
torch::Tensor distance_far_from_zero(at::ScalarType dtype, double start, double noise, int steps) {
  constexpr double kFar = 1e4;
  auto mean = torch::full({16}, kFar + start, dtype);
  auto std = torch::ones({16}, dtype);
  auto step = torch::zeros({}, torch::kLong);
  for (int i = 0; i < steps; ++i) {
    const auto batch_mean = (torch::randn({1, 16}, torch::kDouble) * noise + kFar).to(dtype);
    ops::move_averages_(mean, std, step, batch_mean, torch::ones({1, 16}, dtype), 0.001);
  }
  return (mean.to(torch::kDouble) - kFar).abs();
}

// Half a last digit of a float between 8192 and 16384, divided by the momentum, is 0.488.
TEST_F(Averages, InFloatStopHalfALastDigitOverMomentumShortFarFromZero) {
  const auto stopped = distance_far_from_zero(torch::kFloat, -3.0, 0.0, 8'000);
  EXPECT_GT(stopped.min().item<double>(), 0.48);
  EXPECT_LT(stopped.max().item<double>(), 0.49);
  const auto in_double = distance_far_from_zero(torch::kDouble, -3.0, 0.0, 8'000);
  EXPECT_LT(in_double.max().item<double>(), 3.0 * std::pow(0.999, 8'000) + 1e-9);
}

// An ideal average of these means has a standard deviation of 0.0067; rounding adds about as much again.
TEST_F(Averages, InFloatAreCarriedOnByBatchMeansThatVary) {
  const auto carried = distance_far_from_zero(torch::kFloat, -0.48, 0.3, 12'000);
  EXPECT_LT(carried.max().item<double>(), 0.08);
}

TEST_F(Averages, StayWhereTheyAreWithoutMomentum) {
  for (const auto statistics : {Statistics::kImmediate, Statistics::kDeferred}) {
    BatchRenorm1d layer(BatchRenormOptions(kChannels).momentum(0.0).statistics(statistics));
    randomize(*layer);
    const Snapshot before(*layer);
    layer->forward(torch::randn({6, kChannels}));
    layer->commit();
    EXPECT_TRUE(torch::equal(layer->running_mean, before.running_mean));
    EXPECT_TRUE(torch::equal(layer->running_std, before.running_std));
    EXPECT_EQ(layer->step(), 1);
  }
}

TEST_F(Averages, AreTheMeanOverAllStepsIfCumulative) {
  for (const auto statistics : {Statistics::kImmediate, Statistics::kDeferred}) {
    BatchRenorm1d layer(
        BatchRenormOptions(kChannels).eps(kEps).momentum(Optional<double>()).statistics(statistics));
    torch::Tensor mean = torch::zeros({kChannels}, torch::kDouble);
    torch::Tensor std = torch::zeros({kChannels}, torch::kDouble);
    constexpr int kSteps = 5;
    for (int step = 0; step < kSteps; ++step) {
      const auto x = torch::randn({6, kChannels}) + step;
      layer->forward(x);
      layer->commit();
      const Moments moments = whole(x.unsqueeze(2));
      mean += moments.mean / kSteps;
      std += moments.std / kSteps;
    }
    EXPECT_LE(relative_error(layer->running_mean, mean), kFloatTolerance);
    EXPECT_LE(relative_error(layer->running_std, std), kFloatTolerance);
  }
}

}  // namespace
}  // namespace renorm::testing
