#include "train/build_model.h"

#include <gtest/gtest.h>

#include "base/errors.h"
#include "support.h"
#include "train/clip_spec.h"

namespace renorm::train {
namespace {

TEST(ClipScheduleOfSpec, ScalesThePaperToTheRunUnlessToldOtherwise) {
  EXPECT_EQ(to_schedule(parse_clip("paper"), 1'300), ClipSchedule::ramp(50, 3.0, 400, 5.0, 250));
  EXPECT_EQ(to_schedule(parse_clip("paper@130000"), 1'300), ClipSchedule::paper());
}

TEST(ClipScheduleOfSpec, KeepsConstants) {
  EXPECT_EQ(to_schedule(parse_clip("1,0"), 10), ClipSchedule::batch_norm());
  EXPECT_EQ(to_schedule(parse_clip("inf,inf"), 10), ClipSchedule::unlimited());
}

TEST(ClipScheduleOfSpec, PlacesRampsInTheRun) {
  EXPECT_EQ(to_schedule(parse_clip("hold:10%,r:2@500,d:inf@50%"), 1'000),
            ClipSchedule::ramp(100, 2.0, 500, std::numeric_limits<double>::infinity(), 500));
  EXPECT_THROW(to_schedule(parse_clip("hold:10%,r:2@9,d:1@50%"), 1'000), UsageError);
}

TEST(BuildModel, StartsTheNormsOfDenseLayersAtTheirBias) {
  const data::Dataset dataset = testing::tiny_dataset();
  Config config = testing::tiny_config();
  config.model = "mlp:8,8";
  config.norm_bias = -1.5;
  const auto build = [&] {
    return build_model(resolved(config, dataset.train->size()), dataset.description);
  };
  const std::vector<torch::Tensor> biases = build()->dense_norm_biases();
  ASSERT_EQ(biases.size(), 2U);
  for (const torch::Tensor& bias : biases) EXPECT_TRUE(bias.eq(-1.5).all().item<bool>());
  config.model = "convnet:8/2";
  EXPECT_EQ(testing::message_of<UsageError>([&] { build(); }),
            "--norm-bias needs a model with dense layers, such as mlp; convnet:8/2 has none");
}

}  // namespace
}  // namespace renorm::train
