// The output of a forward in each mode, and the state that it leaves unchanged.
#include <limits>

#include "support.h"

namespace renorm::testing {
namespace {

using Modes = Seeded;

torch::Tensor inference(const BatchRenormLayer& layer, const torch::Tensor& x) {
  std::vector<int64_t> per_channel(x.dim(), 1);
  per_channel[1] = -1;
  return (x - layer.running_mean.view(per_channel)) / layer.running_std.view(per_channel) *
             layer.weight.view(per_channel) +
         layer.bias.view(per_channel);
}

TEST_F(Modes, TrainingEqualsInferenceWithoutLimitsWhateverTheOtherExamplesAre) {
  for (const int64_t group_size : {0, 4}) {
    BatchRenorm2d layer(BatchRenormOptions(6).clip(ClipSchedule::unlimited()).group_size(group_size));
    layer->to(torch::kDouble);
    randomize(*layer);
    auto x = torch::randn({8, 6, 3, 3}, torch::kDouble);
    for (int other = 0; other < 3; ++other) {
      const auto expected = inference(*layer, x.slice(0, 0, 1));
      const auto y = layer->forward(x);
      EXPECT_LE(relative_error(y.slice(0, 0, 1), expected), kDoubleTolerance);
      x = torch::cat({x.slice(0, 0, 1), torch::randn({7, 6, 3, 3}, torch::kDouble) * 4.0 - 2.0});
    }
  }
}

TEST_F(Modes, LimitsAreThoseOfTheStepsBefore) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto schedule = ClipSchedule::ramp(1, infinity, 1, infinity, 1);  // open from step 2 on
  BatchRenorm2d layer(BatchRenormOptions(6).clip(schedule));
  const auto x = torch::randn({8, 6, 4, 4}) * 2.0 + 1.0;
  const auto batch_norm = torch::batch_norm(x, {}, {}, {}, {}, /*training=*/true, 0.0, 1e-5, false);
  for (int step = 0; step < 4; ++step) {
    EXPECT_EQ(layer->clip_limits().d_max, step < 2 ? 0.0 : infinity);
    const auto expected = step < 2 ? batch_norm : inference(*layer, x);
    EXPECT_LE(relative_error(layer->forward(x), expected), kFloatTolerance) << "step " << step;
  }
}

TEST_F(Modes, InferenceUsesTheAveragesAndChangesNothing) {
  BatchRenorm2d layer(6);
  randomize(*layer);
  layer->eval();
  const Snapshot before(*layer);
  const auto x = torch::randn({2, 6, 5, 5});
  EXPECT_LE(relative_error(layer->forward(x), inference(*layer, x)), kFloatTolerance);
  EXPECT_LE(relative_error(layer->forward(x.slice(0, 0, 1)), inference(*layer, x).slice(0, 0, 1)),
            kFloatTolerance);
  EXPECT_TRUE(Snapshot(*layer) == before);
}

TEST_F(Modes, InferenceIsDifferentiable) {
  BatchRenorm1d layer(4);
  layer->to(torch::kDouble);
  randomize(*layer);
  layer->eval();
  const auto x = torch::randn({5, 4}, torch::kDouble).set_requires_grad(true);
  const auto dy = torch::randn({5, 4}, torch::kDouble);
  const auto inputs = std::vector<torch::Tensor>{x, layer->weight, layer->bias};
  const auto actual = torch::autograd::grad({layer->forward(x)}, inputs, {dy});
  const auto expected = torch::autograd::grad({inference(*layer, x)}, inputs, {dy});
  for (size_t i = 0; i < inputs.size(); ++i)
    EXPECT_LE(relative_error(actual[i], expected[i]), kDoubleTolerance);
}

TEST_F(Modes, InferenceHasTheGradientOfItsOwnAveragesEvenIfTheyMoveMeanwhile) {
  BatchRenorm1d layer(4);
  randomize(*layer);
  layer->eval();
  const auto x = torch::randn({5, 4}).set_requires_grad(true);
  const auto expected = (layer->weight / layer->running_std).detach().expand({5, 4}).clone();
  const auto y = layer->forward(x);
  layer->train();
  layer->forward(torch::randn({5, 4}));
  y.sum().backward();
  EXPECT_LE(relative_error(x.grad(), expected), kFloatTolerance);
}

TEST_F(Modes, GraphOverTheAveragesFailsIfTheyMoveMeanwhile) {
  BatchRenorm1d layer(4);
  const auto y = layer->running_mean * torch::randn({4}).set_requires_grad(true);
  const auto z = layer->running_std * torch::randn({4}).set_requires_grad(true);
  layer->forward(torch::randn({5, 4}));
  expect_message([&] { y.sum().backward(); }, {"modified by an inplace operation"});
  expect_message([&] { z.sum().backward(); }, {"modified by an inplace operation"});
}

TEST_F(Modes, BatchStatisticsInEvaluationAreBatchNormOfTheWholeInputAndChangeNothing) {
  BatchRenorm2d layer(BatchRenormOptions(6).group_size(3).clip(ClipSchedule::unlimited()));
  randomize(*layer);
  layer->forward(torch::randn({6, 6, 4, 4}));
  layer->eval();
  layer->use_batch_statistics(true);
  EXPECT_TRUE(layer->uses_batch_statistics());
  const Snapshot before(*layer);
  const auto x = torch::randn({8, 6, 4, 4}) * 2.0 + 1.0;  // not a multiple of the group
  const auto expected =
      torch::batch_norm(x, layer->weight, layer->bias, {}, {}, /*training=*/true, 0.0, 1e-5, false);
  EXPECT_LE(relative_error(layer->forward(x), expected), kFloatTolerance);
  EXPECT_TRUE(Snapshot(*layer) == before);
  layer->use_batch_statistics(false);
  EXPECT_LE(relative_error(layer->forward(x), inference(*layer, x)), kFloatTolerance);
}

TEST_F(Modes, WithoutAveragesItIsBatchNormInTrainingAndEvaluation) {
  BatchRenorm2d layer(BatchRenormOptions(6).track_running_stats(false).clip(ClipSchedule::unlimited()));
  randomize(*layer);
  EXPECT_FALSE(layer->running_mean.defined());
  EXPECT_TRUE(layer->buffers().empty());
  const auto x = torch::randn({8, 6, 4, 4}) * 2.0 + 1.0;
  const auto expected =
      torch::batch_norm(x, layer->weight, layer->bias, {}, {}, /*training=*/true, 0.0, 1e-5, false);
  EXPECT_LE(relative_error(layer->forward(x), expected), kFloatTolerance);
  layer->eval();
  EXPECT_LE(relative_error(layer->forward(x), expected), kFloatTolerance);
  EXPECT_EQ(layer->step(), 0);
  EXPECT_EQ(layer->clip_limits().r_max, 1.0);
  EXPECT_EQ(layer->clip_telemetry().values, 0);
  EXPECT_FALSE(layer->commit());
}

TEST_F(Modes, ReluFollowsTheNormalizationInEveryMode) {
  const auto options = BatchRenormOptions(6).clip(ClipSchedule::constant(2.0, 1.0));
  BatchRenorm2d plain(options);
  BatchRenorm2d fused(BatchRenormOptions(options).activation(Activation::kRelu));
  const auto x = torch::randn({8, 6, 4, 4});
  const auto expect_relu = [&](const char* mode) {
    const auto expected = plain->forward(x).relu();
    EXPECT_TRUE(torch::equal(fused->forward(x), expected)) << mode;
    EXPECT_GT(expected.eq(0).sum().item<int64_t>(), 0) << mode;
  };
  expect_relu("training");
  plain->eval();
  fused->eval();
  expect_relu("inference");
  plain->use_batch_statistics(true);
  fused->use_batch_statistics(true);
  expect_relu("batch statistics");
}

TEST_F(Modes, SeveralForwardsBeforeOneBackwardHaveTheGradientsOfEachAlone) {
  BatchRenorm1d layer(BatchRenormOptions(4).momentum(0.5).clip(ClipSchedule::constant(1.5, 0.5)));
  layer->to(torch::kDouble);
  randomize(*layer);
  std::vector<torch::Tensor> x;
  std::vector<torch::Tensor> dy;
  std::vector<torch::Tensor> alone;
  auto loss = torch::zeros({}, torch::kDouble);
  auto weight_grad = torch::zeros({4}, torch::kDouble);
  for (int i = 0; i < 3; ++i) {
    x.push_back(torch::randn({6, 4}, torch::kDouble).set_requires_grad(true));
    dy.push_back(torch::randn({6, 4}, torch::kDouble));
    const auto copy = std::dynamic_pointer_cast<BatchRenorm1dImpl>(layer->clone());
    const auto grads = torch::autograd::grad({copy->forward(x[i])}, {x[i], copy->weight}, {dy[i]});
    alone.push_back(grads[0]);
    weight_grad += grads[1];
    loss = loss + (layer->forward(x[i]) * dy[i]).sum();
  }
  loss.backward();
  for (int i = 0; i < 3; ++i) EXPECT_LE(relative_error(x[i].grad(), alone[i]), kDoubleTolerance);
  EXPECT_LE(relative_error(layer->weight.grad(), weight_grad), kDoubleTolerance);
}

TEST_F(Modes, AccumulatedMicrobatchesEqualOneBatchOfGroups) {
  const auto options = BatchRenormOptions(4).clip(ClipSchedule::constant(1.5, 0.5));
  BatchRenorm1d one(BatchRenormOptions(options).group_size(4));
  BatchRenorm1d many(BatchRenormOptions(options).statistics(Statistics::kDeferred));
  for (int step = 0; step < 3; ++step) {
    const auto x = torch::randn({12, 4}) * 2.0;
    const auto dy = torch::randn({12, 4});
    one->zero_grad();
    many->zero_grad();
    one->forward(x).backward(dy);
    for (int64_t first = 0; first < 12; first += 4) {
      many->forward(x.slice(0, first, first + 4)).backward(dy.slice(0, first, first + 4));
    }
    EXPECT_TRUE(many->commit());
    EXPECT_TRUE(Snapshot(*one) == Snapshot(*many));
    EXPECT_LE(relative_error(many->weight.grad(), one->weight.grad()), kFloatTolerance);
    EXPECT_LE(relative_error(many->bias.grad(), one->bias.grad()), kFloatTolerance);
  }
}

TEST_F(Modes, EmptyBatchPassesThroughEveryMode) {
  BatchRenorm2d layer(BatchRenormOptions(6).group_size(2));
  BatchRenorm1d dense(6);
  BatchRenorm3d untracked(BatchRenormOptions(6).track_running_stats(false));
  const Snapshot before(*layer);
  const auto expect_empty = [&] {
    for (const auto& shape : std::vector<std::vector<int64_t>>{{0, 6, 3, 3}, {2, 6, 0, 3}}) {
      layer->zero_grad();
      const auto x = torch::randn(shape).set_requires_grad(true);
      const auto y = layer->forward(x);
      EXPECT_EQ(y.sizes(), x.sizes());
      y.sum().backward();
      EXPECT_EQ(x.grad().sizes(), x.sizes());
    }
    EXPECT_EQ(dense->forward(torch::randn({0, 6})).sizes(), (std::vector<int64_t>{0, 6}));
    EXPECT_EQ(untracked->forward(torch::randn({0, 6, 1, 2, 3})).numel(), 0);
  };
  expect_empty();
  layer->eval();
  dense->eval();
  untracked->eval();
  expect_empty();
  layer->use_batch_statistics(true);
  dense->use_batch_statistics(true);
  expect_empty();
  EXPECT_TRUE(Snapshot(*layer) == before);
  EXPECT_EQ(dense->step(), 0);
}

TEST_F(Modes, OneExampleTrainsIfItHasSeveralPositions) {
  BatchRenorm2d layer(6);
  EXPECT_EQ(layer->forward(torch::randn({1, 6, 1, 2})).size(0), 1);
  EXPECT_EQ(layer->step(), 1);
}

TEST_F(Modes, MetaInputGivesShapesOnly) {
  BatchRenorm2d layer(BatchRenormOptions(6).affine(false).track_running_stats(false));
  const auto x = torch::empty({2, 6, 3, 3}, torch::kMeta);
  EXPECT_EQ(layer->forward(x).sizes(), x.sizes());
}

TEST_F(Modes, BFloat16InputKeepsFloatAverages) {
  BatchRenorm2d layer(6);
  const auto x = torch::randn({4, 6, 5, 5}) * 2.0 + 1.0;
  const auto y = layer->forward(x.to(torch::kBFloat16));
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(layer->running_std.scalar_type(), torch::kFloat);
  BatchRenorm2d in_float(6);
  // bfloat16 keeps 8 bits: outputs of up to 4 are off by up to 4 / 2^8.
  EXPECT_LE((y - in_float->forward(x)).abs().max().item<double>(), 0.05);
}

}  // namespace
}  // namespace renorm::testing
