// Saved, loaded and converted layers continue training exactly.
#include <sstream>

#include "support.h"

namespace renorm::testing {
namespace {

using State = Seeded;

constexpr int kStepsBefore = 7;
constexpr int kStepsAfter = 9;

torch::nn::Sequential model() {
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).bias(false)),
                               BatchRenorm2d(ramping()), torch::nn::ReLU());
}

BatchRenorm2dImpl& norm_of(torch::nn::Sequential net) { return *net[1]->as<BatchRenorm2dImpl>(); }

void train(torch::nn::Sequential net, int first, int steps) {
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int step = first; step < first + steps; ++step) {
    torch::manual_seed(step);
    optimizer.zero_grad();
    net->forward(torch::randn({6, 3, 5, 5}) * 2.0 + 1.0).square().mean().backward();
    optimizer.step();
  }
}

// Both nets have been trained for kStepsBefore steps.
void expect_same_future(torch::nn::Sequential a, torch::nn::Sequential b) {
  expect_same_state(*a, *b);
  EXPECT_EQ(norm_of(a).step(), kStepsBefore);
  EXPECT_EQ(norm_of(b).clip_limits().r_max, norm_of(a).clip_limits().r_max);
  EXPECT_GT(norm_of(b).clip_limits().r_max, 1.0);
  train(a, kStepsBefore, kStepsAfter);
  train(b, kStepsBefore, kStepsAfter);
  expect_same_state(*a, *b);
  EXPECT_EQ(norm_of(b).step(), kStepsBefore + kStepsAfter);
}

// One norm in a container, one registered twice.
struct Nested : torch::nn::Module {
  Nested() {
    register_module("stem", stem);
    register_module("norm", norm);
    register_module("again", norm);
  }
  torch::nn::Sequential stem{torch::nn::Conv2d(3, 4, 3), BatchRenorm2d(4)};
  BatchRenorm2d norm{4};
};

TEST_F(State, SavedAndLoadedModelContinuesExactly) {
  auto net = model();
  train(net, 0, kStepsBefore);
  std::stringstream file;
  torch::save(net, file);
  auto loaded = model();
  torch::load(loaded, file);
  expect_same_future(net, loaded);
}

TEST_F(State, LoadedModelForgetsItsOwnPast) {
  auto net = model();
  train(net, 0, kStepsBefore);
  std::stringstream file;
  torch::save(net, file);
  auto loaded = model();
  train(loaded, 100, 3);
  torch::load(loaded, file);
  expect_same_future(net, loaded);
}

TEST_F(State, SavedAndLoadedLayerIsTheSame) {
  BatchRenorm1d layer(ramping());
  for (int step = 0; step < 5; ++step) layer->forward(torch::randn({8, 4}));
  std::stringstream file;
  torch::save(layer, file);
  BatchRenorm1d loaded(ramping());
  torch::load(loaded, file);
  expect_same_state(*layer, *loaded);
  EXPECT_EQ(loaded->step(), 5);
}

TEST_F(State, LayersWithoutParametersOrAveragesSaveAndLoad) {
  for (const bool affine : {true, false}) {
    for (const bool tracks : {true, false}) {
      const auto options = BatchRenormOptions(4).affine(affine).scale(false).track_running_stats(tracks);
      BatchRenorm1d layer(options);
      randomize(*layer);
      std::stringstream file;
      torch::save(layer, file);
      BatchRenorm1d loaded(options);
      torch::load(loaded, file);
      EXPECT_EQ(loaded->parameters().size(), affine ? 1U : 0U);
      EXPECT_EQ(loaded->buffers().size(), tracks ? 3U : 0U);
      expect_same_state(*layer, *loaded);
      expect_same_state(*layer, *layer->clone());
    }
  }
}

TEST_F(State, CloneContinuesExactly) {
  auto net = model();
  train(net, 0, kStepsBefore);
  const auto clone = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
  expect_same_future(net, torch::nn::Sequential(clone));
}

TEST_F(State, ConversionToDoubleAndBackContinuesExactly) {
  auto net = model();
  train(net, 0, kStepsBefore);
  auto moved = torch::nn::Sequential(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone()));
  moved->to(torch::kDouble);
  EXPECT_EQ(norm_of(moved).weight.scalar_type(), torch::kDouble);
  EXPECT_EQ(norm_of(moved).running_std.scalar_type(), torch::kDouble);
  EXPECT_EQ(norm_of(moved).num_batches_tracked.scalar_type(), torch::kLong);
  moved->to(torch::kCPU, torch::kFloat);
  moved->to(torch::kCPU);
  expect_same_future(net, moved);
}

TEST_F(State, NarrowDtypesLeaveTheLayerInFloat) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    auto net = model();
    net->to(dtype);
    EXPECT_EQ(net[0]->as<torch::nn::Conv2dImpl>()->weight.scalar_type(), dtype);
    for (const auto& parameter : norm_of(net).parameters()) EXPECT_EQ(parameter.scalar_type(), torch::kFloat);
    EXPECT_EQ(norm_of(net).running_std.scalar_type(), torch::kFloat);
    net->to(torch::kCPU, dtype);
    EXPECT_EQ(norm_of(net).running_mean.scalar_type(), torch::kFloat);
  }
  auto net = model();
  net->to(torch::kBFloat16);
  EXPECT_EQ(net->forward(torch::randn({2, 3, 5, 5}).to(torch::kBFloat16)).scalar_type(), torch::kBFloat16);
}

TEST_F(State, ResetParametersRestoresTheInitialState) {
  BatchRenorm2d layer(ramping().statistics(Statistics::kDeferred));
  layer->forward(torch::randn({4, 4, 3, 3}));
  layer->commit();
  layer->forward(torch::randn({4, 4, 3, 3}));
  layer->reset_parameters();
  EXPECT_FALSE(layer->commit());
  EXPECT_EQ(layer->clip_telemetry().values, 0);
  expect_same_state(*layer, *BatchRenorm2d(ramping()));
}

TEST_F(State, ParametersFollowTheOptions) {
  BatchRenorm1d full(4);
  EXPECT_TRUE(full->weight.requires_grad());
  EXPECT_TRUE(full->bias.requires_grad());
  BatchRenorm1d paper(BatchRenormOptions(4).scale(false));
  EXPECT_FALSE(paper->weight.defined());
  EXPECT_TRUE(paper->bias.defined());
  BatchRenorm1d bare(BatchRenormOptions(4).affine(false));
  EXPECT_TRUE(bare->parameters().empty());
  EXPECT_EQ(bare->forward(torch::randn({3, 4})).size(0), 3);
}

TEST_F(State, LayersOfAModelAreFoundOnceAndNamedByTheirPath) {
  Nested net;
  const auto layers = batch_renorm_layers(net);
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].path, "stem.1");
  EXPECT_EQ(layers[1].path, "norm");
  EXPECT_EQ(layers[1].layer, net.norm.get());
  name_layers(net);
  EXPECT_EQ(net.norm->options.name(), "norm");
  expect_message(
      [&] {
        net.stem->forward(torch::randn({1, 3, 3, 3}));
      },
      {"renorm::BatchRenorm2d \"stem.1\""});
  const auto alone = batch_renorm_layers(*net.norm);
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].path, "");
}

TEST_F(State, LoadingDiscardsWhatWasCollected) {
  const auto options = ramping().statistics(Statistics::kDeferred);
  BatchRenorm1d layer(options);
  std::stringstream file;
  torch::save(layer, file);
  BatchRenorm1d loaded(options);
  loaded->forward(torch::randn({8, 4}));
  torch::load(loaded, file);
  EXPECT_FALSE(loaded->commit());
  EXPECT_EQ(loaded->clip_telemetry().values, 0);
  expect_same_state(*layer, *loaded);
}

TEST_F(State, LoadingAModelDiscardsWhatItsLayersCollected) {
  auto saved = model();
  train(saved, 0, 3);
  set_statistics(*saved, Statistics::kDeferred);
  saved->forward(torch::randn({6, 3, 5, 5}));
  std::stringstream file;
  torch::save(saved, file);
  auto loaded = model();
  set_statistics(*loaded, Statistics::kDeferred);
  loaded->forward(torch::randn({6, 3, 5, 5}));
  torch::load(loaded, file);
  EXPECT_EQ(commit(*loaded), 0);
  EXPECT_EQ(norm_of(loaded).clip_telemetry().values, 0);
  expect_same_state(*saved, *loaded);
}

TEST_F(State, FollowsTheDefaultDtype) {
  const auto before = torch::get_default_dtype();
  for (const auto dtype : {torch::kDouble, torch::kFloat, torch::kHalf}) {
    torch::set_default_dtype(caffe2::TypeMeta::fromScalarType(dtype));
    BatchRenorm1d layer(4);
    const auto expected = dtype == torch::kDouble ? torch::kDouble : torch::kFloat;
    EXPECT_EQ(layer->weight.scalar_type(), expected);
    EXPECT_EQ(layer->running_std.scalar_type(), expected);
  }
  torch::set_default_dtype(before);
}

TEST_F(State, NarrowDtypesMakeADoubleLayerFloat) {
  BatchRenorm1d layer(4);
  layer->to(torch::kDouble);
  layer->to(torch::kBFloat16);
  EXPECT_EQ(layer->weight.scalar_type(), torch::kFloat);
  EXPECT_EQ(layer->running_mean.scalar_type(), torch::kFloat);
  EXPECT_EQ(layer->forward(torch::randn({4, 4}).to(torch::kBFloat16)).scalar_type(), torch::kBFloat16);
}

TEST_F(State, NumberOfChannelsIsReadAtConstruction) {
  BatchRenorm1d layer(4);
  layer->options.num_features(9);
  EXPECT_EQ(layer->channels(), 4);
  EXPECT_EQ(layer->forward(torch::randn({8, 4})).size(1), 4);
}

TEST_F(State, ResetRunningStatsKeepsParameters) {
  BatchRenorm2d layer(ramping());
  layer->forward(torch::randn({4, 4, 3, 3}));
  randomize(*layer);
  const auto weight = layer->weight.clone();
  layer->reset_running_stats();
  EXPECT_TRUE(torch::equal(layer->weight, weight));
  EXPECT_TRUE(torch::equal(layer->running_std, torch::ones({4})));
  EXPECT_EQ(layer->step(), 0);
  EXPECT_EQ(layer->clip_telemetry().values, 0);
}

TEST_F(State, PrintsItsOptions) {
  std::ostringstream text;
  text << *BatchRenorm2d(BatchRenormOptions(64).group_size(4).activation(Activation::kRelu));
  EXPECT_EQ(text.str(),
            "renorm::BatchRenorm2d(64, eps=1e-05, momentum=0.01, affine=true, scale=true, "
            "track_running_stats=true, group_size=4 contiguous, activation=relu, "
            "clip=(r_max 3 at 40000, d_max 5 at 25000, hold 5000))");
}

}  // namespace
}  // namespace renorm::testing
