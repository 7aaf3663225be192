// The parts: norms, convolutions, Inception and residual blocks.
#include "models/blocks.h"

#include <ATen/record_function.h>

#include <cmath>
#include <set>

#include "models/inception.h"
#include "models/resnet.h"
#include "support.h"

namespace renorm::models {
namespace {

using ConvNorms = Seeded;
using Norms = Seeded;
using InceptionBlocks = Seeded;
using ResidualBlocks = Seeded;

TEST_F(Norms, KeepEverythingButChannelsAndActivation) {
  const auto like = BatchRenormOptions(1)
                        .eps(0.25)
                        .momentum(0.5)
                        .scale(false)
                        .group_size(4)
                        .grouping(Grouping::kStrided)
                        .clip(ClipSchedule::constant(2.0, 3.0))
                        .statistics(Statistics::kDeferred);
  const auto module = batch_renorm(like)(7, Activation::kRelu);
  const auto& options = module.ptr()->as<BatchRenorm2dImpl>()->options;
  EXPECT_EQ(options.num_features(), 7);
  EXPECT_EQ(options.activation(), Activation::kRelu);
  EXPECT_EQ(options.eps(), 0.25);
  EXPECT_EQ(options.momentum(), 0.5);
  EXPECT_FALSE(options.scale());
  EXPECT_EQ(options.group_size(), 4);
  EXPECT_EQ(options.grouping(), Grouping::kStrided);
  EXPECT_EQ(options.clip(), ClipSchedule::constant(2.0, 3.0));
  EXPECT_EQ(options.statistics(), Statistics::kDeferred);
}

TEST_F(Norms, NativeIsBatchNormAndThenRelu) {
  for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
    auto norm = native_batch_norm(1e-2, 0.3, /*scale=*/true)(5, activation);
    torch::nn::BatchNorm2d expected(torch::nn::BatchNormOptions(5).eps(1e-2).momentum(0.3));
    const torch::Tensor x = torch::randn({4, 5, 3, 3});
    const torch::Tensor y = expected->forward(x);
    EXPECT_TRUE(torch::equal(norm.forward(x), activation == Activation::kRelu ? y.relu() : y));
    EXPECT_TRUE(torch::equal(norm.ptr()->named_buffers()["batch_norm.running_var"], expected->running_var));
  }
}

TEST_F(Norms, NativeWithoutScaleHasNoWeightToTrain) {
  auto norm = native(/*scale=*/false)(5, Activation::kRelu);
  const auto parameters = norm.ptr()->named_parameters();
  EXPECT_EQ(parameters.keys(), (std::vector<std::string>{"bias"}));
  norm.forward(torch::randn({4, 5, 3, 3})).square().sum().backward();
  EXPECT_TRUE(parameters["bias"].grad().defined());
  const torch::Tensor weight = norm.ptr()->named_buffers()["weight"];
  EXPECT_TRUE(torch::equal(weight, torch::ones({5})));
  EXPECT_FALSE(weight.requires_grad());
  EXPECT_FALSE(weight.grad().defined());
  norm.ptr()->to(torch::kDouble);
  EXPECT_EQ(norm.forward(torch::randn({4, 5, 3, 3}, torch::kDouble)).scalar_type(), torch::kDouble);
}

TEST_F(ConvNorms, ConvolveNormalizeAndRectify) {
  for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
    ConvNorm layer(square(3, 6, 3, 2), batchnorm(), activation);
    const torch::Tensor x = torch::randn({4, 3, 7, 9});
    const torch::Tensor convolved = torch::conv2d(x, layer->conv->weight, {}, 2, 1);
    const torch::Tensor mean = convolved.mean({0, 2, 3}, true);
    const torch::Tensor var = (convolved - mean).square().mean({0, 2, 3}, true);
    torch::Tensor expected = (convolved - mean) / (var + 1e-3).sqrt();
    if (activation == Activation::kRelu) expected = expected.relu();
    EXPECT_EQ(expected.sizes(), (at::IntArrayRef{4, 6, 4, 5}));
    EXPECT_LT(relative_error(layer->forward(x), expected), 1e-5);
    EXPECT_FALSE(layer->conv->bias.defined());
  }
}

TEST_F(ConvNorms, WeightsStartByHesRule) {
  const ConvNorm layer(rectangle(64, 128, {1, 7}), batchnorm());
  const torch::Tensor weight = layer->conv->weight.detach();
  // 57,344 draws: the standard deviation is known to about 0.3 %.
  EXPECT_NEAR(weight.std().item<double>() / std::sqrt(2.0 / (64 * 7)), 1.0, 0.02);
  EXPECT_NEAR(weight.mean().item<double>(), 0.0, 0.002);
}

TEST_F(ConvNorms, ClassifierStartsSmall) {
  const auto linear = linear_classifier(128, 200);
  EXPECT_NEAR(linear->weight.std().item<double>(), 0.01, 0.0005);
  EXPECT_EQ(linear->bias.abs().max().item<double>(), 0.0);
}

TEST_F(InceptionBlocks, KeepOrHalveTheMap) {
  const torch::NoGradGuard no_grad;
  const MakeNorm norm = batchnorm();
  const torch::Tensor x = torch::randn({2, 8, 17, 17});
  auto a = inception_a(8, {4, 3, 5, 2, 6, 7}, norm);
  EXPECT_EQ(a->forward(x).sizes(), (at::IntArrayRef{2, 22, 17, 17}));
  EXPECT_EQ(a->out_channels, 22);
  EXPECT_EQ(inception_b(8, {4, 3, 5}, 0, norm)->forward(x).sizes(), (at::IntArrayRef{2, 17, 8, 8}));
  EXPECT_EQ(inception_b(8, {4, 3, 5}, 1, norm)->forward(x).sizes(), (at::IntArrayRef{2, 17, 9, 9}));
  EXPECT_EQ(inception_c(8, {3, 5}, norm)->forward(x).sizes(), (at::IntArrayRef{2, 20, 17, 17}));
  EXPECT_EQ(inception_d(8, {3, 4, 5}, 0, norm)->forward(x).sizes(), (at::IntArrayRef{2, 17, 8, 8}));
  EXPECT_EQ(inception_d(8, {3, 4, 5}, 1, norm)->forward(x).sizes(), (at::IntArrayRef{2, 17, 9, 9}));
  EXPECT_EQ(inception_e(8, {3, 4, 5, 6}, norm)->forward(x).sizes(), (at::IntArrayRef{2, 25, 17, 17}));
}

TEST_F(InceptionBlocks, HaveTorchvisionsNames) {
  const auto names = [](const InceptionBlock& block) {
    std::string text;
    for (const auto& child : block->named_children()) text += child.key() + " ";
    return text;
  };
  const MakeNorm norm = batchnorm();
  EXPECT_EQ(names(inception_a(8, {1, 1, 1, 1, 1, 1}, norm)),
            "branch1x1 branch5x5_1 branch5x5_2 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3 branch_pool ");
  EXPECT_EQ(names(inception_b(8, {1, 1, 1}, 0, norm)),
            "branch3x3 branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3 ");
  EXPECT_EQ(names(inception_c(8, {1, 1}, norm)),
            "branch1x1 branch7x7_1 branch7x7_2 branch7x7_3 branch7x7dbl_1 branch7x7dbl_2 branch7x7dbl_3 "
            "branch7x7dbl_4 branch7x7dbl_5 branch_pool ");
  EXPECT_EQ(names(inception_d(8, {1, 1, 1}, 0, norm)),
            "branch3x3_1 branch3x3_2 branch7x7x3_1 branch7x7x3_2 branch7x7x3_3 branch7x7x3_4 ");
  EXPECT_EQ(names(inception_e(8, {1, 1, 1, 1}, norm)),
            "branch1x1 branch3x3_1 branch3x3_2a branch3x3_2b branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3a "
            "branch3x3dbl_3b branch_pool ");
}

TEST_F(ResidualBlocks, AddTheShortcutBeforeTheLastRelu) {
  Residual block(basic_body(4, 4, 1), batchnorm());
  const torch::Tensor x = torch::randn({3, 4, 5, 5});
  const auto children = block->named_children();
  ASSERT_EQ(children.keys(), (std::vector<std::string>{"conv1", "conv2"}));
  const torch::Tensor before = x.clone();
  const torch::Tensor inner = children["conv1"]->as<ConvNormImpl>()->forward(x);
  const torch::Tensor body = children["conv2"]->as<ConvNormImpl>()->forward(inner);
  EXPECT_GE(inner.min().item<float>(), 0.0F);
  EXPECT_LT(body.min().item<float>(), 0.0F);
  EXPECT_TRUE(torch::equal(block->forward(x), (body + x).relu()));
  EXPECT_TRUE(torch::equal(x, before));
}

// Names of the operators that run while it exists.
class OperatorLog {
 public:
  OperatorLog() {
    names().clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(observe));
  }
  ~OperatorLog() { at::removeCallback(handle_); }
  OperatorLog(const OperatorLog&) = delete;
  OperatorLog& operator=(const OperatorLog&) = delete;

  static std::set<std::string>& names() {
    static std::set<std::string> all;
    return all;
  }

 private:
  static std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& function) {
    const auto op = function.operator_name();
    if (op.has_value()) names().insert(op->name);
    return nullptr;
  }

  at::CallbackHandle handle_;
};

// The operators of a block's end that our norm computes in its own pass.
std::set<std::string> separate_operators(Residual block, bool trains) {
  block->train(trains);
  const OperatorLog log;
  block->forward(torch::randn({3, 4, 5, 5}));
  std::set<std::string> found;
  for (const char* name : {"aten::add", "aten::add_", "aten::relu", "aten::relu_"}) {
    if (OperatorLog::names().count(name) > 0) found.insert(name);
  }
  return found;
}

TEST_F(ResidualBlocks, AddAndRectifyInTheNorm) {
  for (const bool trains : {true, false}) {
    for (const int64_t stride : {1, 2}) {
      const Residual basic(basic_body(4, 4, stride), batchnorm());
      const Residual bottleneck(bottleneck_body(4, 2, 8, stride), batchnorm());
      EXPECT_EQ(separate_operators(basic, trains), std::set<std::string>{});
      EXPECT_EQ(separate_operators(bottleneck, trains), std::set<std::string>{});
    }
  }
  const Residual other(basic_body(4, 4, 1), native());
  EXPECT_FALSE(separate_operators(other, true).empty());
}

TEST_F(ResidualBlocks, ProjectTheShortcutWhereTheShapeChanges) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::randn({3, 4, 9, 9});
  Residual strided(basic_body(4, 4, 2), batchnorm());
  EXPECT_EQ(strided->forward(x).sizes(), (at::IntArrayRef{3, 4, 5, 5}));
  EXPECT_EQ(strided->children().size(), 3U);
  Residual bottleneck(bottleneck_body(4, 2, 8, 2), batchnorm());
  EXPECT_EQ(bottleneck->forward(x).sizes(), (at::IntArrayRef{3, 8, 5, 5}));
  EXPECT_EQ(bottleneck->children().size(), 4U);
  EXPECT_EQ(basic_stage(4, 8, 3, 2, batchnorm())->forward(x).sizes(), (at::IntArrayRef{3, 8, 5, 5}));
  EXPECT_EQ(bottleneck_stage(4, 2, 3, 2, batchnorm())->forward(x).sizes(), (at::IntArrayRef{3, 8, 5, 5}));
}

}  // namespace
}  // namespace renorm::models
