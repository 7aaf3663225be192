// Saved, loaded, cloned and converted layers continue training exactly.
#include <sstream>

#include "support.h"

namespace renorm::testing {
namespace {

using State = Seeded;

constexpr int kStepsBefore = 7;
constexpr int kStepsAfter = 9;

// Moves through hold, ramp and plateau during the steps of these tests.
BatchRenormOptions ramping() {
  return BatchRenormOptions(4).momentum(0.1).clip(ClipSchedule::ramp(3, 3.0, 12, 5.0, 10));
}

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

void expect_same_state(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto compare = [](const auto& left, const auto& right) {
    ASSERT_EQ(left.size(), right.size());
    for (const auto& item : left) EXPECT_TRUE(torch::equal(item.value(), right[item.key()])) << item.key();
  };
  compare(a.named_parameters(), b.named_parameters());
  compare(a.named_buffers(), b.named_buffers());
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

// A user's model: LibTorch clones it by constructing a new one and copying its children one by one.
struct OwnModelImpl : torch::nn::Cloneable<OwnModelImpl> {
  OwnModelImpl() { OwnModelImpl::reset(); }
  void reset() override { norm = register_module("norm", BatchRenorm2d(ramping())); }

  BatchRenorm2d norm{nullptr};
};

TEST_F(State, CloneOfAModelCopiesItsLayers) {
  OwnModelImpl net;
  for (int step = 0; step < kStepsBefore; ++step) net.norm(torch::randn({6, 4, 5, 5}) + 1.0);
  net.norm->options.momentum(0.25);
  net.norm->eval();
  const auto copy = std::dynamic_pointer_cast<OwnModelImpl>(net.clone());
  expect_same_state(net, *copy);
  EXPECT_EQ(copy->norm->step(), kStepsBefore);
  EXPECT_EQ(*copy->norm->options.momentum(), 0.25);
  EXPECT_FALSE(copy->norm->is_training());
  EXPECT_EQ(copy->norm->clip_telemetry().values, 0);
  EXPECT_FALSE(copy->norm->running_mean.is_alias_of(net.norm->running_mean));
}

TEST_F(State, CloneSharesNothing) {
  BatchRenorm2d layer(ramping().statistics(Statistics::kDeferred).name("stem").group_size(2));
  layer->eval();
  layer->use_batch_statistics(true);
  layer->train();
  layer->forward(torch::randn({4, 4, 3, 3}));
  const auto clone = std::dynamic_pointer_cast<BatchRenorm2dImpl>(layer->clone());
  EXPECT_EQ(clone->clip_telemetry().values, 0);
  EXPECT_FALSE(clone->commit());
  EXPECT_EQ(clone->options.clip(), layer->options.clip());
  EXPECT_EQ(clone->options.name(), "stem");
  EXPECT_EQ(clone->options.group_size(), 2);
  EXPECT_TRUE(clone->uses_batch_statistics());

  const Snapshot before(*clone);
  EXPECT_TRUE(layer->commit());
  {
    const torch::NoGradGuard no_grad;
    layer->weight.fill_(7.0);
  }
  EXPECT_TRUE(Snapshot(*clone) == before);
  EXPECT_EQ(clone->weight.max().item<float>(), 1.0F);
  EXPECT_TRUE(clone->named_buffers()["running_mean"].is_same(clone->running_mean));
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

TEST_F(State, CloneHasTheTensorsThatTheLayerWasBuiltWith) {
  BatchRenorm1d layer(4);
  randomize(*layer);
  layer->options.affine(false).track_running_stats(false).num_features(9);
  const auto clone = std::dynamic_pointer_cast<BatchRenorm1dImpl>(layer->clone());
  expect_same_state(*layer, *clone);
  EXPECT_EQ(clone->options.num_features(), 9);
  BatchRenorm1d bare(BatchRenormOptions(4).affine(false).track_running_stats(false));
  bare->options.affine(true).scale(false).track_running_stats(true);
  EXPECT_TRUE(std::dynamic_pointer_cast<BatchRenorm1dImpl>(bare->clone())->parameters().empty());
}

// A model whose reset() builds its layer differently from the one that is cloned.
struct OtherModelImpl : torch::nn::Cloneable<OtherModelImpl> {
  explicit OtherModelImpl(bool affine = true) {
    norm = register_module("norm", BatchRenorm1d(BatchRenormOptions(4).affine(affine)));
  }
  void reset() override { norm = register_module("norm", BatchRenorm1d(4)); }

  BatchRenorm1d norm{nullptr};
};

// A subclass that does not say how it is cloned.
struct SilentImpl : BatchRenorm2dImpl {
  using BatchRenorm2dImpl::BatchRenorm2dImpl;
  int own = 3;
};

// A model whose layer is such a subclass.
struct SubclassModelImpl : torch::nn::Cloneable<SubclassModelImpl> {
  SubclassModelImpl() { SubclassModelImpl::reset(); }
  void reset() override { norm = register_module("norm", std::make_shared<SilentImpl>(ramping())); }

  std::shared_ptr<SilentImpl> norm;
};

TEST_F(State, CloneOfAModelRefusesASubclassThatWouldLoseItsMembers) {
  expect_message([] { SubclassModelImpl().clone(); }, {"SilentImpl", "must override clone_()"});
}

TEST_F(State, NumberOfChannelsIsReadAtConstruction) {
  BatchRenorm1d layer(4);
  layer->options.num_features(9);
  EXPECT_EQ(layer->channels(), 4);
  EXPECT_EQ(layer->forward(torch::randn({8, 4})).size(1), 4);
}

TEST_F(State, CloneIntoALayerOfOtherParametersSaysSo) {
  expect_message([] { OtherModelImpl(false).clone(); }, {"clone", "a weight", "affine, scale"});
}

// A subclass that clones as itself.
struct ScaledImpl : BatchRenorm2dImpl {
  explicit ScaledImpl(BatchRenormOptions options) : BatchRenorm2dImpl(std::move(options)) {}
  torch::Tensor forward(const torch::Tensor& input) override {
    return 2.0 * BatchRenorm2dImpl::forward(input);
  }
  std::shared_ptr<torch::nn::Module> clone(const Optional<torch::Device>& device = {}) const override {
    return clone_as<ScaledImpl>(device);
  }
};

struct OwnKindImpl : BatchRenormLayer {
  explicit OwnKindImpl(BatchRenormOptions options)
      : BatchRenormLayer(std::move(options), {"OwnKind", 2, 2, "[N, C]"}) {}
};

TEST_F(State, SubclassesCloneAsThemselvesOrAreRefused) {
  ScaledImpl scaled(ramping());
  randomize(scaled);
  const auto clone = scaled.clone();
  ASSERT_NE(dynamic_cast<ScaledImpl*>(clone.get()), nullptr);
  expect_same_state(scaled, *clone);
  const std::shared_ptr<BatchRenormLayer> base = std::make_shared<ScaledImpl>(ramping());
  base->eval();
  const auto x = torch::randn({2, 4, 3, 3});
  EXPECT_TRUE(torch::equal(base->forward(x), 2.0 * base->BatchRenormLayer::forward(x)));
  expect_message([] { SilentImpl(ramping()).clone(); }, {"SilentImpl", "must override clone()"});
  expect_message([] { OwnKindImpl(ramping()).clone(); }, {"renorm::OwnKind", "must override clone()"});
  OwnKindImpl own(ramping());
  EXPECT_EQ(own.forward(torch::randn({3, 4})).size(0), 3);
  expect_message(
      [&] {
        own.forward(torch::randn({3, 4, 2}));
      },
      {"renorm::OwnKind: input must be [N, C], got 3"});
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
