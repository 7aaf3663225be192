// Every error names the module, the argument, the expected value and the actual one.
#include <limits>

#include "support.h"

namespace renorm::testing {
namespace {

using BadInput = Seeded;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename Layer>
void expect_refused(Layer& layer, const torch::Tensor& input, const std::vector<std::string>& parts) {
  expect_message([&] { layer->forward(input); }, parts);
}

TEST_F(BadInput, OptionsAreCheckedAtConstruction) {
  const auto build = [](const BatchRenormOptions& options) {
    return [options] { BatchRenorm2d layer(options); };
  };
  const auto options = BatchRenormOptions(4);
  const auto copy = [&] { return BatchRenormOptions(options); };
  expect_message(build(BatchRenormOptions(0)), {"renorm::BatchRenorm2d: num_features must be > 0, got 0"});
  expect_message(build(copy().eps(-1)), {"renorm::BatchRenorm2d: eps must be > 0, got -1"});
  expect_message(build(copy().eps(0)), {"eps must be > 0, got 0"});
  expect_message(build(copy().eps(kNan)), {"eps must be > 0, got nan"});
  expect_message(build(copy().momentum(-0.1)), {"momentum must be in [0, 1], got -0.1"});
  expect_message(build(copy().momentum(1.5)), {"momentum must be in [0, 1], got 1.5"});
  expect_message(build(copy().momentum(kNan)), {"momentum must be in [0, 1], got nan"});
  expect_message(build(copy().group_size(-2)), {"group_size must be >= 0, got -2"});
  EXPECT_EQ(message_of(build(copy().momentum(1.0))), "");
  EXPECT_EQ(message_of(build(copy().momentum(0.0))), "");
  EXPECT_EQ(message_of(build(copy().momentum(Optional<double>()))), "");
}

TEST_F(BadInput, EpsMustNotRoundToZeroInTheDtype) {
  BatchRenorm1d layer(BatchRenormOptions(4).eps(1e-50));
  expect_refused(layer, torch::randn({4, 4}),
                 {"renorm::BatchRenorm1d: eps must be > 0 as a Float, got 1e-50"});
  layer->eval();
  for (const bool by_batch : {false, true}) {
    layer->use_batch_statistics(by_batch);
    expect_refused(layer, torch::randn({4, 4}), {"eps must be > 0 as a Float, got 1e-50"});
  }
  layer->use_batch_statistics(false);
  layer->train();
  layer->to(torch::kDouble);
  EXPECT_EQ(layer->forward(torch::randn({4, 4}, torch::kDouble)).size(0), 4);
}

TEST_F(BadInput, AveragesThatTrainingCannotProduceNameTheChannel) {
  for (const float bad : {0.0F, -1.0F, kNan, kInfinity}) {
    for (const bool training : {true, false}) {
      BatchRenorm2d layer(BatchRenormOptions(5).name("stem.norm"));
      layer->train(training);
      layer->running_std[3] = bad;
      expect_refused(
          layer, torch::randn({2, 5, 3, 3}),
          {"renorm::BatchRenorm2d \"stem.norm\": running_std must be finite and > 0, got ", " in channel 3"});
    }
  }
  BatchRenorm2d layer(BatchRenormOptions(5).name("stem.norm"));
  layer->running_mean[4] = kNan;
  expect_refused(layer, torch::randn({2, 5, 3, 3}),
                 {"renorm::BatchRenorm2d \"stem.norm\": running_mean must be finite, got nan in channel 4"});
}

TEST_F(BadInput, OptionsAreCheckedAgainWhenTheyChange) {
  BatchRenorm1d layer(4);
  layer->options.eps(-3.0);
  expect_refused(layer, torch::randn({4, 4}), {"renorm::BatchRenorm1d: eps must be > 0, got -3"});
  layer->options.eps(1e-5).momentum(2.0);
  expect_refused(layer, torch::randn({4, 4}), {"momentum", "2"});
}

TEST_F(BadInput, RankIsNamed) {
  BatchRenorm1d one(4);
  BatchRenorm2d two(4);
  BatchRenorm3d three(4);
  expect_refused(one, torch::randn({4}), {"renorm::BatchRenorm1d", "input", "[N, C] or [N, C, L]", "got 1"});
  expect_refused(one, torch::randn({2, 4, 2, 2}), {"renorm::BatchRenorm1d", "input", "got 4"});
  expect_refused(two, torch::randn({4, 2, 2}), {"renorm::BatchRenorm2d", "input", "[N, C, H, W]", "got 3"});
  expect_refused(three, torch::randn({2, 4, 2, 2}),
                 {"renorm::BatchRenorm3d", "input", "[N, C, D, H, W]", "got 4"});
  expect_refused(two, torch::Tensor(), {"renorm::BatchRenorm2d", "input", "undefined"});
}

TEST_F(BadInput, ChannelsDtypeAndDeviceAreNamed) {
  BatchRenorm2d layer(BatchRenormOptions(4).name("stem.norm"));
  for (const bool training : {true, false}) {
    layer->train(training);
    const std::string who = "renorm::BatchRenorm2d \"stem.norm\": input must ";
    expect_refused(layer, torch::randn({2, 5, 3, 3}), {who, "4 channels", "got 5"});
    expect_refused(layer, torch::ones({2, 4, 3, 3}, torch::kInt), {who, "floating", "got Int"});
    expect_refused(layer, torch::randn({2, 4, 3, 3}, torch::kDouble), {who, "Float", "got Double"});
    expect_refused(layer, torch::empty({2, 4, 3, 3}, torch::kMeta), {who, "cpu", "got meta"});
  }
  layer->to(torch::kDouble);
  expect_refused(layer, torch::randn({2, 4, 3, 3}), {"input", "Double", "got Float"});
  expect_refused(layer, torch::randn({2, 4, 3, 3}).to(torch::kBFloat16), {"input", "Double", "got BFloat16"});
  EXPECT_EQ(layer->step(), 0);
}

TEST_F(BadInput, DtypeOfAModuleMustBeFloating) {
  BatchRenorm2d layer(4);
  expect_message([&] { layer->to(torch::kLong); }, {"dtype", "floating", "got Long"});
}

TEST_F(BadInput, GroupSizeMustDivideTheBatch) {
  BatchRenorm1d layer(BatchRenormOptions(4).group_size(3));
  expect_refused(layer, torch::randn({8, 4}), {"group_size", "divide", "group_size 3", "batch of 8"});
  layer->eval();
  EXPECT_EQ(layer->forward(torch::randn({8, 4})).size(0), 8);
}

TEST_F(BadInput, OneValuePerChannelSaysWhatToDo) {
  BatchRenorm1d layer(4);
  const Snapshot before(*layer);
  expect_refused(layer, torch::randn({1, 4}),
                 {"input", "more than one value", "[1, 4]", "larger batch", "eval()"});
  layer->options.group_size(1);
  expect_refused(layer, torch::randn({8, 4}),
                 {"input", "group_size 1", "larger batch or group_size", "eval()"});
  layer->eval();
  EXPECT_EQ(layer->forward(torch::randn({1, 4})).size(0), 1);
  layer->use_batch_statistics(true);
  expect_refused(layer, torch::randn({1, 4}), {"input", "more than one value", "larger batch"});
  EXPECT_TRUE(Snapshot(*layer) == before);
}

TEST_F(BadInput, NonFiniteBatchNamesTheModuleAndChangesNothing) {
  for (const float value : {kNan, kInfinity, -kInfinity}) {
    BatchRenorm2d layer(BatchRenormOptions(5).name("stem.norm").group_size(2));
    for (int step = 0; step < 17; ++step) layer->forward(torch::randn({4, 5, 3, 3}));
    const Snapshot before(*layer);
    auto x = torch::randn({4, 5, 3, 3});
    x[3][3][1][1] = value;
    expect_refused(layer, x,
                   {"renorm::BatchRenorm2d \"stem.norm\": the batch statistics of channel 3 are not finite; "
                    "look for overflow or NaN in the input (step 17)"});
    EXPECT_TRUE(Snapshot(*layer) == before);
  }
}

// Finite values whose squares overflow: refused or not, the averages stay finite.
TEST_F(BadInput, HugeValuesNeverReachTheAverages) {
  BatchRenorm1d layer(4);
  auto x = torch::full({8, 4}, 3e38F);
  x.slice(0, 0, 8, 2).neg_();
  const std::string message = message_of([&] { layer->forward(x); });
  EXPECT_TRUE(message.empty() || message.find("not finite") != std::string::npos) << message;
  EXPECT_TRUE(layer->running_mean.isfinite().all().item<bool>());
  EXPECT_TRUE(layer->running_std.isfinite().all().item<bool>());
}

TEST_F(BadInput, NonFiniteBatchIsNotCollected) {
  BatchRenorm1d layer(BatchRenormOptions(4).statistics(Statistics::kDeferred));
  BatchRenorm1d expected(BatchRenormOptions(4).statistics(Statistics::kDeferred));
  const auto good = torch::randn({6, 4});
  layer->forward(good);
  expected->forward(good);
  expect_refused(layer, torch::full({6, 4}, kNan), {"renorm::BatchRenorm1d: ", "channel 0", "step 0"});
  EXPECT_TRUE(layer->commit());
  EXPECT_TRUE(expected->commit());
  EXPECT_TRUE(Snapshot(*layer) == Snapshot(*expected));
  EXPECT_GT(layer->running_mean.abs().max().item<float>(), 0.0F);
}

TEST_F(BadInput, NonFiniteBatchIsRefusedWithoutAveragesToo) {
  BatchRenorm1d layer(BatchRenormOptions(4).track_running_stats(false));
  expect_refused(layer, torch::full({6, 4}, kInfinity), {"renorm::BatchRenorm1d: ", "not finite"});
}

}  // namespace
}  // namespace renorm::testing
