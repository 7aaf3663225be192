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
    EXPECT_EQ(renorm->step(), 4);
    EXPECT_EQ(back->num_batches_tracked.template item<int64_t>(), 4);
    EXPECT_EQ(renorm->options.eps(), eps);
    EXPECT_EQ(renorm->options.momentum(), 0.7);
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
  EXPECT_EQ(renorm->options.momentum(), 0.01);
  const auto back = to_batch_norm(renorm);
  EXPECT_FALSE(back->weight.defined());
  EXPECT_FALSE(back->running_mean.defined());
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
  expect_message([&] { to_batch_norm(relu); }, {"renorm::to_batch_norm", "activation", "kNone", "kRelu"});
  BatchRenorm1d narrow(BatchRenormOptions(4).eps(0.25));
  narrow->running_std[2] = 0.125;
  expect_message([&] { to_batch_norm(narrow); },
                 {"renorm::to_batch_norm", "running_std", "channel 2", "sqrt(eps) = 0.5", "0.125"});
  torch::nn::BatchNorm1d frozen(torch::nn::BatchNormOptions(4).momentum(0.0));
  expect_message([&] { from_batch_norm(frozen); }, {"momentum", "(0, 1]", "0"});
}

}  // namespace
}  // namespace renorm::testing
