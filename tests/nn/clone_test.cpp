// Clones of layers, of a user's subclasses, and of models that hold them.
#include "support.h"

namespace renorm::testing {
namespace {

using Clone = Seeded;

constexpr int kSteps = 7;

// A user's model: LibTorch clones it by constructing a new one and copying its children one by one.
struct OwnModelImpl : torch::nn::Cloneable<OwnModelImpl> {
  OwnModelImpl() { OwnModelImpl::reset(); }
  void reset() override { norm = register_module("norm", BatchRenorm2d(ramping())); }

  BatchRenorm2d norm{nullptr};
};

TEST_F(Clone, OfAModelCopiesItsLayers) {
  OwnModelImpl net;
  for (int step = 0; step < kSteps; ++step) net.norm(torch::randn({6, 4, 5, 5}) + 1.0);
  net.norm->options.momentum(0.25);
  net.norm->eval();
  const auto copy = std::dynamic_pointer_cast<OwnModelImpl>(net.clone());
  expect_same_state(net, *copy);
  EXPECT_EQ(copy->norm->step(), kSteps);
  EXPECT_EQ(*copy->norm->options.momentum(), 0.25);
  EXPECT_FALSE(copy->norm->is_training());
  EXPECT_EQ(copy->norm->clip_telemetry().values, 0);
  EXPECT_FALSE(copy->norm->running_mean.is_alias_of(net.norm->running_mean));
}

TEST_F(Clone, SharesNothing) {
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

TEST_F(Clone, HasTheTensorsThatTheLayerWasBuiltWith) {
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

TEST_F(Clone, OfAModelRefusesASubclassThatWouldLoseItsMembers) {
  expect_message([] { SubclassModelImpl().clone(); }, {"SilentImpl", "must override clone_()"});
}

TEST_F(Clone, IntoALayerOfOtherParametersSaysSo) {
  expect_message([] { OtherModelImpl(false).clone(); }, {"clone", "'weight'", "affine, scale"});
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

TEST_F(Clone, OfASubclassIsItselfOrRefused) {
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

// A subclass with tensors and a plain member of its own, which clones alone and inside of a model.
struct FullImpl : BatchRenorm2dImpl {
  explicit FullImpl(BatchRenormOptions options) : BatchRenorm2dImpl(std::move(options)) {
    shift = register_parameter("shift", torch::zeros({channels()}));
    calls = register_buffer("calls", torch::zeros({}, torch::kLong));
  }
  std::shared_ptr<torch::nn::Module> clone(const Optional<torch::Device>& device = {}) const override {
    auto copy = std::dynamic_pointer_cast<FullImpl>(clone_as<FullImpl>(device));
    copy->own = own;
    return copy;
  }
  void clone_(torch::nn::Module& other, const Optional<torch::Device>& device) override {
    const auto& from = dynamic_cast<const FullImpl&>(other);
    copy_state(from, device);
    own = from.own;
  }

  torch::Tensor shift, calls;
  int own = 0;
};

struct FullModelImpl : torch::nn::Cloneable<FullModelImpl> {
  FullModelImpl() { FullModelImpl::reset(); }
  void reset() override { norm = register_module("norm", std::make_shared<FullImpl>(ramping())); }

  std::shared_ptr<FullImpl> norm;
};

TEST_F(Clone, CopiesTheTensorsOfASubclass) {
  FullModelImpl model;
  randomize(*model.norm);
  {
    const torch::NoGradGuard no_grad;
    model.norm->shift.uniform_();
    model.norm->calls.fill_(7);
  }
  model.norm->shift.set_requires_grad(false);
  model.norm->own = 5;
  const auto alone = std::dynamic_pointer_cast<FullImpl>(model.norm->clone());
  const auto inside = std::dynamic_pointer_cast<FullModelImpl>(model.clone())->norm;
  for (const auto& copy : {alone, inside}) {
    expect_same_state(*model.norm, *copy);
    EXPECT_TRUE(torch::equal(copy->shift, model.norm->shift));
    EXPECT_FALSE(copy->shift.is_same(model.norm->shift));
    EXPECT_FALSE(copy->shift.requires_grad());
    EXPECT_EQ(copy->calls.item<int64_t>(), 7);
    EXPECT_EQ(copy->own, 5);
  }
}

TEST_F(Clone, TensorsAndChildrenOfASubclassFollowTheDtype) {
  FullImpl layer(ramping());
  const auto gate = layer.register_module("gate", torch::nn::Linear(4, 4));
  const auto expect_types = [&](torch::Dtype own, torch::Dtype held) {
    EXPECT_EQ(layer.shift.scalar_type(), own);
    EXPECT_EQ(gate->weight.scalar_type(), own);
    EXPECT_EQ(layer.weight.scalar_type(), held);
    EXPECT_EQ(layer.running_std.scalar_type(), held);
    EXPECT_EQ(layer.calls.scalar_type(), torch::kLong);
  };
  layer.to(torch::kDouble);
  expect_types(torch::kDouble, torch::kDouble);
  layer.to(torch::kBFloat16);
  expect_types(torch::kBFloat16, torch::kFloat);
}

TEST_F(Clone, RefusesChildrenOfASubclass) {
  ScaledImpl scaled(ramping());
  scaled.register_module("gate", torch::nn::Linear(4, 4));
  expect_message([&] { scaled.clone(); }, {"renorm::BatchRenorm2d", "cannot copy the child module 'gate'"});
}

}  // namespace
}  // namespace renorm::testing
