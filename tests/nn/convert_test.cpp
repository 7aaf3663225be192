// Conversion between batchnorm and Batch Renorm keeps inference unchanged.
#include <renorm/nn/convert.h>

#include <cmath>

#include "support.h"

namespace renorm::testing {
namespace {

using Convert = Seeded;

// Relative to the output's scale; one rounding of the standard deviation and one of the output each way.
constexpr double kInferenceTolerance = 1e-6;

template <typename Norm>
Norm trained_batch_norm(const torch::nn::BatchNormOptions& options, const std::vector<int64_t>& shape) {
  Norm norm(options);
  if (norm->weight.defined()) {
    const torch::NoGradGuard no_grad;
    norm->weight.uniform_(0.5, 2.0);
    norm->bias.uniform_(-1.0, 1.0);
  }
  for (int step = 0; step < 4; ++step) norm->forward(torch::randn(shape) * 0.1 + 0.5);
  norm->eval();
  return norm;
}

template <typename Norm>
void expect_round_trip(const std::vector<int64_t>& shape) {
  const auto x = torch::randn(shape) * 0.2 + 0.5;
  for (const double eps : {1e-5, 1e-1}) {
    auto norm = trained_batch_norm<Norm>(torch::nn::BatchNormOptions(shape[1]).momentum(0.7).eps(eps), shape);
    auto renorm = from_batch_norm(norm);
    auto back = to_batch_norm(renorm);
    const auto expected = norm->forward(x);
    EXPECT_FALSE(renorm->is_training());
    EXPECT_FALSE(back->is_training());
    EXPECT_LE(relative_error(renorm->forward(x), expected), kInferenceTolerance);
    EXPECT_LE(relative_error(back->forward(x), expected), kInferenceTolerance);
    EXPECT_EQ(renorm->step(), 0);
    EXPECT_EQ(from_batch_norm(norm, ClipSchedule::paper(), StepOrigin::kKeep)->step(), 4);
    EXPECT_EQ(back->num_batches_tracked.template item<int64_t>(), 0);
    EXPECT_EQ(renorm->options.eps(), eps);
    EXPECT_EQ(*renorm->options.momentum(), 0.7);
    EXPECT_EQ(back->options.eps(), eps);
    EXPECT_EQ(*back->options.momentum(), 0.7);
  }
}

TEST_F(Convert, KeepsInferenceBothWays) {
  expect_round_trip<torch::nn::BatchNorm1d>({16, 5});
  expect_round_trip<torch::nn::BatchNorm1d>({8, 5, 7});
  expect_round_trip<torch::nn::BatchNorm2d>({4, 5, 6, 7});
  expect_round_trip<torch::nn::BatchNorm3d>({2, 5, 3, 4, 5});
}

TEST_F(Convert, KeepsDtypeModeClipAndFrozenParameters) {
  torch::nn::BatchNorm2d norm(4);
  norm->to(torch::kDouble);
  norm->weight.set_requires_grad(false);
  const auto renorm = from_batch_norm(norm, ClipSchedule::constant(2.0, 1.0));
  EXPECT_TRUE(renorm->is_training());
  EXPECT_EQ(renorm->running_std.scalar_type(), torch::kDouble);
  EXPECT_EQ(renorm->num_batches_tracked.scalar_type(), torch::kLong);
  EXPECT_EQ(renorm->options.clip(), ClipSchedule::constant(2.0, 1.0));
  EXPECT_FALSE(renorm->weight.requires_grad());
  EXPECT_TRUE(renorm->bias.requires_grad());
  const auto back = to_batch_norm(renorm);
  EXPECT_EQ(back->running_var.scalar_type(), torch::kDouble);
  EXPECT_EQ(back->num_batches_tracked.scalar_type(), torch::kLong);
}

TEST_F(Convert, SharesNoMemory) {
  torch::nn::BatchNorm1d norm(4);
  const auto renorm = from_batch_norm(norm);
  const auto back = to_batch_norm(renorm);
  EXPECT_NE(renorm->weight.data_ptr(), norm->weight.data_ptr());
  EXPECT_NE(back->num_batches_tracked.data_ptr(), renorm->num_batches_tracked.data_ptr());
}

TEST_F(Convert, KeepsWhatIsMissingMissing) {
  torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(4).affine(false).track_running_stats(false));
  norm->options.momentum().reset();
  const auto renorm = from_batch_norm(norm);
  EXPECT_FALSE(renorm->weight.defined());
  EXPECT_FALSE(renorm->running_mean.defined());
  EXPECT_FALSE(renorm->options.track_running_stats());
  EXPECT_FALSE(renorm->options.momentum().has_value());
  const auto back = to_batch_norm(renorm);
  EXPECT_FALSE(back->weight.defined());
  EXPECT_FALSE(back->running_mean.defined());
}

// Options of batchnorm may have changed since it was built; its tensors have not.
TEST_F(Convert, TakesTheTensorsOfBatchNormNotItsOptions) {
  const auto x = torch::randn({6, 4});
  auto norm = trained_batch_norm<torch::nn::BatchNorm1d>(torch::nn::BatchNormOptions(4), {16, 4});
  norm->options.affine(false).num_features(9);
  auto renorm = from_batch_norm(norm);
  EXPECT_EQ(renorm->channels(), 4);
  EXPECT_LE(relative_error(renorm->forward(x), norm->forward(x)), kInferenceTolerance);

  torch::nn::BatchNorm1d bare(torch::nn::BatchNormOptions(4).affine(false).track_running_stats(false));
  bare->options.affine(true).track_running_stats(true);
  auto converted = from_batch_norm(bare);
  EXPECT_TRUE(converted->parameters().empty());
  EXPECT_FALSE(converted->running_mean.defined());
  EXPECT_LE(relative_error(converted->forward(x), bare->forward(x)), kInferenceTolerance);
}

// Such a batchnorm has averages, but evaluates with the statistics of the batch.
TEST_F(Convert, KeepsEvaluationByTheBatchWhereTrackingWasTurnedOff) {
  const auto x = torch::randn({6, 4});
  auto norm = trained_batch_norm<torch::nn::BatchNorm1d>(torch::nn::BatchNormOptions(4), {16, 4});
  norm->options.track_running_stats(false);
  auto renorm = from_batch_norm(norm);
  EXPECT_TRUE(renorm->running_mean.defined());
  EXPECT_TRUE(renorm->uses_batch_statistics());
  EXPECT_LE(relative_error(renorm->forward(x), norm->forward(x)), kInferenceTolerance);
}

TEST_F(Convert, GivesAFixedWeightOfOneWhereScaleIsOff) {
  BatchRenorm1d renorm(BatchRenormOptions(4).scale(false));
  randomize(*renorm);
  renorm->eval();
  auto norm = to_batch_norm(renorm);
  const auto x = torch::randn({6, 4});
  EXPECT_LE(relative_error(norm->forward(x), renorm->forward(x)), kInferenceTolerance);
  EXPECT_FALSE(norm->weight.requires_grad());
}

TEST_F(Convert, KeepsAChannelWithoutVariance) {
  torch::nn::BatchNorm1d norm(2);
  norm->running_var.zero_();
  norm->eval();
  auto renorm = from_batch_norm(norm);
  auto back = to_batch_norm(renorm);
  EXPECT_GE(back->running_var.min().item<double>(), 0.0);
  const auto x = torch::randn({6, 2}) * 0.01;
  EXPECT_LE(relative_error(renorm->forward(x), norm->forward(x)), kInferenceTolerance);
  EXPECT_LE(relative_error(back->forward(x), norm->forward(x)), kInferenceTolerance);
}

TEST_F(Convert, TakesHalfPrecisionBatchNormInFloat) {
  torch::nn::BatchNorm1d norm(3);
  norm->to(torch::kBFloat16);
  const auto renorm = from_batch_norm(norm);
  EXPECT_EQ(renorm->weight.scalar_type(), torch::kFloat);
  EXPECT_EQ(renorm->running_std.scalar_type(), torch::kFloat);
}

TEST_F(Convert, RejectsWhatBatchNormCannotExpress) {
  BatchRenorm1d relu(BatchRenormOptions(4).activation(Activation::kRelu));
  expect_message([&] { to_batch_norm(relu); },
                 {"renorm::to_batch_norm", "activation", "kNone", "kRelu", "FusedRelu::kDrop"});
  BatchRenorm1d narrow(BatchRenormOptions(4).eps(0.25));
  narrow->running_std[2] = 0.125;
  expect_message([&] { to_batch_norm(narrow); },
                 {"renorm::to_batch_norm", "running_std", "channel 2", "sqrt(eps) = 0.5", "0.125"});
}

TEST_F(Convert, DropsAFusedReluOnRequest) {
  BatchRenorm1d relu(BatchRenormOptions(4).activation(Activation::kRelu));
  randomize(*relu);
  relu->eval();
  auto norm = to_batch_norm(relu, FusedRelu::kDrop);
  const auto x = torch::randn({6, 4});
  EXPECT_LE(relative_error(norm->forward(x).relu(), relu->forward(x)), kInferenceTolerance);
}

// Some versions of batchnorm train such a layer, so the first forward must not refuse it.
TEST_F(Convert, TakesAConstantChannelWithoutEps) {
  torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(4).eps(0.0));
  norm->running_var[2] = 0.0;
  auto renorm = from_batch_norm(norm, ClipSchedule::paper(1000));
  EXPECT_GT(renorm->running_std.min().item<double>(), 0.0);
  const auto x = torch::randn({16, 4});
  const auto wide = x.to(torch::kDouble);
  const auto expected = (wide - wide.mean(0)) / wide.std(0, /*unbiased=*/false);
  EXPECT_LE(relative_error(renorm->forward(x), expected), kInferenceTolerance);
}

TEST_F(Convert, TakesEveryLegalBatchNorm) {
  const auto x = torch::randn({16, 4}) * 3.0 + 1.0;
  for (const double eps : {0.0, 1e-50, 1e-5}) {
    for (const Optional<double> momentum :
         {Optional<double>(0.0), Optional<double>(1.0), Optional<double>()}) {
      auto norm = trained_batch_norm<torch::nn::BatchNorm1d>(
          torch::nn::BatchNormOptions(4).eps(eps).momentum(momentum), {16, 4});
      auto renorm = from_batch_norm(norm, ClipSchedule::batch_norm());
      EXPECT_LE(relative_error(renorm->forward(x), norm->forward(x)), kInferenceTolerance);
      EXPECT_EQ(renorm->options.momentum().has_value(), momentum.has_value());
      EXPECT_EQ(renorm->step(), momentum.has_value() ? 0 : 4);
      // One more step moves both averages by the same share.
      renorm->train();
      norm->train();
      renorm->forward(x);
      norm->forward(x);
      EXPECT_LE(relative_error(renorm->running_mean, norm->running_mean), kFloatTolerance);
    }
  }
}

// A user's block, whose member only the class itself can change.
struct BlockImpl : torch::nn::Module {
  BlockImpl() { register_module("norm", norm); }
  torch::nn::BatchNorm2d norm{4};
};
TORCH_MODULE(Block);

torch::nn::Sequential tree() {
  torch::nn::ModuleList list(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 4));
  using Entry = std::pair<std::string, std::shared_ptr<torch::nn::Module>>;
  torch::nn::ModuleDict dict(std::vector<Entry>{{"head", torch::nn::BatchNorm3d(4).ptr()}});
  torch::nn::Sequential net(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4), torch::nn::ReLU());
  net->register_module("list", list);
  net->register_module("dict", dict);
  return net;
}

TEST_F(Convert, ReplacesLayersOfContainersAndBack) {
  auto net = tree();
  net->to(torch::kDouble);
  net->eval();
  const auto x = torch::randn({2, 3, 6, 6}, torch::kDouble);
  const auto expected = net->forward(x);
  const auto paths = convert(*net, ClipSchedule::paper(1000));
  EXPECT_EQ(paths, (std::vector<std::string>{"1", "list.0", "dict.head"}));
  const auto layers = batch_renorm_layers(*net);
  ASSERT_EQ(layers.size(), 3U);
  EXPECT_EQ(layers[0].path, "1");
  EXPECT_EQ(layers[0].layer, net[1]->as<BatchRenorm2dImpl>());
  EXPECT_EQ(layers[0].layer->options.clip(), ClipSchedule::paper(1000));
  EXPECT_FALSE(layers[0].layer->is_training());
  EXPECT_LE(relative_error(net->forward(x), expected), kDoubleTolerance);
  EXPECT_EQ(net->parameters().size(), 10U);
  EXPECT_EQ(revert(*net), paths);
  EXPECT_TRUE(batch_renorm_layers(*net).empty());
  EXPECT_LE(relative_error(net->forward(x), expected), kDoubleTolerance);
}

TEST_F(Convert, ReplacesWhatIsSelected) {
  auto net = tree();
  EXPECT_EQ(convert(*net, ClipSchedule::paper(), {{"list.*", "dict.*"}, {"*.head"}}),
            (std::vector<std::string>{"list.0"}));
  EXPECT_EQ(convert(*net, ClipSchedule::paper(), {{"nothing"}, {}}), std::vector<std::string>{});
}

TEST_F(Convert, KeepsTheStepsOfAllLayersIfTold) {
  for (const auto step : {StepOrigin::kRestart, StepOrigin::kKeep}) {
    torch::nn::Sequential net(torch::nn::BatchNorm1d(4), torch::nn::BatchNorm1d(4));
    for (int i = 0; i < 3; ++i) net->forward(torch::randn({6, 4}));
    convert(*net, ClipSchedule::paper(), {}, step);
    for (const auto& named : batch_renorm_layers(*net)) {
      EXPECT_EQ(named.layer->step(), step == StepOrigin::kKeep ? 3 : 0);
    }
  }
}

TEST_F(Convert, ReplacesASharedLayerByOneOrNotAtAll) {
  torch::nn::BatchNorm2d shared(4);
  torch::nn::Sequential net(shared, torch::nn::ReLU(), shared, torch::nn::BatchNorm2d(4));
  expect_message(
      [&] {
        convert(*net, ClipSchedule::paper(), {{"*"}, {"2"}});
      },
      {"renorm::convert: '0' is also '2', which is not selected"});
  EXPECT_TRUE(batch_renorm_layers(*net).empty());
  EXPECT_EQ(convert(*net).size(), 3U);
  EXPECT_EQ(net[0]->as<BatchRenorm2dImpl>(), net[2]->as<BatchRenorm2dImpl>());
  EXPECT_EQ(batch_renorm_layers(*net).size(), 2U);
  expect_message([&] { revert(*net, {{"2"}, {}}); }, {"renorm::revert: '2' is also '0'"});
}

TEST_F(Convert, NamesMembersThatItCannotReplaceAndChangesNothing) {
  torch::nn::Sequential net(torch::nn::BatchNorm2d(4), torch::nn::BatchNorm2d(4));
  net->register_module("block", Block());
  expect_message([&] { convert(*net); }, {"renorm::convert: 'block.norm' is a member of ", "BlockImpl"});
  EXPECT_TRUE(batch_renorm_layers(*net).empty());
  EXPECT_EQ(convert(*net, ClipSchedule::paper(), {{"*"}, {"block.*"}}).size(), 2U);
  torch::nn::Sequential fused(BatchRenorm2d(4),
                              BatchRenorm2d(BatchRenormOptions(4).activation(Activation::kRelu)));
  expect_message([&] { revert(*fused); }, {"renorm::revert: '1': renorm::to_batch_norm", "kRelu"});
  EXPECT_EQ(batch_renorm_layers(*fused).size(), 2U);
  EXPECT_EQ(revert(*fused, {}, FusedRelu::kDrop).size(), 2U);
  BatchRenorm2d alone(4);
  expect_message([&] { revert(*alone); }, {"renorm::revert", "to_batch_norm"});
}

// A container with a member of its own, and a subclass of a layer.
struct OwnSequentialImpl : torch::nn::SequentialImpl {
  OwnSequentialImpl() { register_module("norm", norm); }
  torch::nn::BatchNorm2d norm{4};
};
struct OwnNormImpl : BatchRenorm2dImpl {
  using BatchRenorm2dImpl::BatchRenorm2dImpl;
};

TEST_F(Convert, NamesSubclassesAndMembersOfContainers) {
  OwnSequentialImpl own;
  expect_message([&] { convert(own); }, {"renorm::convert: 'norm' is a member of ", "OwnSequentialImpl"});
  torch::nn::Sequential net;
  net->push_back(torch::nn::AnyModule(std::make_shared<OwnNormImpl>(4)));
  expect_message([&] { revert(*net); }, {"renorm::revert: '0' is a ", "OwnNormImpl", "exclude it"});
}

}  // namespace
}  // namespace renorm::testing
