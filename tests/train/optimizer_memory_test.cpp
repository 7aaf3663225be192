// Gradients and parameters of every dtype and order of memory, on any number of threads.
#include <limits>

#include "optimizer_support.h"

namespace renorm::train {
namespace {

class OptimizerMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1702); }
};

// The same parameter in memory orders of its own for value, gradient and state.
TEST_F(OptimizerMemoryTest, OrderOfMemoryDoesNotMatter) {
  const auto start = torch::randn({6, 4, 3, 3});
  for (const auto& options : all_kinds()) {
    auto plain = std::vector<NamedTensor>{{"w", start.clone().set_requires_grad(true)}};
    auto last = std::vector<NamedTensor>{
        {"w", start.contiguous(at::MemoryFormat::ChannelsLast).clone().set_requires_grad(true)}};
    auto mixed = copies(last);
    auto strided = std::vector<NamedTensor>{
        {"w", torch::zeros({6, 4, 3, 6}).slice(3, 0, 6, 2).copy_(start).set_requires_grad(true)}};
    ASSERT_FALSE(last[0].tensor.is_contiguous());
    ASSERT_FALSE(strided[0].tensor.is_non_overlapping_and_dense());
    for (auto* parameters : {&plain, &last, &mixed, &strided}) {
      const auto optimizer = make_optimizer(options, *parameters);
      for (int64_t step = 0; step < 20; ++step) {
        set_gradients(*parameters, step);
        if (parameters == &last) {
          auto& gradient = (*parameters)[0].tensor.mutable_grad();
          gradient = gradient.contiguous(at::MemoryFormat::ChannelsLast);
        }
        optimizer->step(kRate);
      }
    }
    EXPECT_TRUE(torch::equal(last[0].tensor, plain[0].tensor)) << name_of(options.kind);
    // These go through double and are rounded at other places.
    EXPECT_LE(error(mixed[0].tensor, plain[0].tensor), kFloatTolerance) << name_of(options.kind);
    EXPECT_LE(error(strided[0].tensor, plain[0].tensor), kFloatTolerance) << name_of(options.kind);
  }
}

TEST_F(OptimizerMemoryTest, GoesOnWhenTheModelMovesToAnotherOrderOfMemory) {
  for (const auto& options : all_kinds()) {
    auto plain = std::vector<NamedTensor>{{"w", torch::randn({6, 4, 3, 3}).set_requires_grad(true)}};
    auto moved = copies(plain);
    for (auto* parameters : {&plain, &moved}) {
      const auto optimizer = make_optimizer(options, *parameters);
      for (int64_t step = 0; step < 20; ++step) {
        torch::Tensor value = (*parameters)[0].tensor;
        if (parameters == &moved && step == 10) {
          value.set_data(value.detach().contiguous(at::MemoryFormat::ChannelsLast));
        }
        set_gradients(*parameters, step);
        auto& gradient = value.mutable_grad();
        gradient = gradient.contiguous(value.suggest_memory_format());
        optimizer->step(kRate);
      }
    }
    EXPECT_LE(error(moved[0].tensor, plain[0].tensor), kFloatTolerance) << name_of(options.kind);
  }
}

// Sixteen bits hold the parameter, not the state: a step of a thousandth of it must not vanish from there.
TEST_F(OptimizerMemoryTest, NarrowParametersHaveFloatState) {
  auto parameters =
      std::vector<NamedTensor>{{"w", torch::ones({3, 3}, torch::kBFloat16).set_requires_grad(true)}};
  auto options = options_of("rmsprop-tf", 0.0, 0.0);
  options.alpha = 0.999;
  const auto optimizer = make_optimizer(options, parameters);
  parameters[0].tensor.mutable_grad() = torch::full({3, 3}, 0.5, torch::kBFloat16);
  optimizer->step(0.25);
  const double mean_square = 0.999 + 0.001 * 0.25;
  const auto state = optimizer->state()[0].tensor;
  EXPECT_EQ(state.scalar_type(), torch::kFloat);
  EXPECT_LE(error(state, torch::full({3, 3}, mean_square, torch::kDouble)), kFloatTolerance);
  const double expected = 1.0 - 0.25 * 0.5 / std::sqrt(mean_square + 1e-8);
  EXPECT_NEAR(parameters[0].tensor.detach()[0][0].to(torch::kDouble).item<double>(), expected, 1.0 / 256);
}

TEST_F(OptimizerMemoryTest, NumberOfThreadsDoesNotChangeTheBits) {
  const int threads = at::get_num_threads();
  const auto start = torch::randn({257, 1031});
  std::vector<std::string> results;
  std::vector<double> norms;
  for (const int n : {1, 2, 5}) {
    at::set_num_threads(n);
    auto parameters = std::vector<NamedTensor>{{"w", start.clone().set_requires_grad(true)}};
    const auto optimizer = make_optimizer(options_of("rmsprop-tf", 0.9, 0.01), parameters);
    for (int64_t step = 0; step < 3; ++step) {
      set_gradients(parameters, step);
      optimizer->step(kRate);
    }
    results.push_back(encode_tensors(parameters) + encode_tensors(optimizer->state()));
    norms.push_back(gradient_norm(parameters));
  }
  at::set_num_threads(threads);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(norms[0], norms[1]);
  EXPECT_EQ(norms[0], norms[2]);
}

// A graph that was built before the step would otherwise multiply by weights that are no longer there.
TEST_F(OptimizerMemoryTest, ABackwardPassThatNeedsTheOldValuesFails) {
  auto parameters = std::vector<NamedTensor>{{"w", torch::randn({3, 3}).set_requires_grad(true)}};
  const auto optimizer = make_optimizer(options_of("sgd", 0.0, 0.0), parameters);
  const auto x = torch::randn({2, 3}).set_requires_grad(true);
  const auto y = torch::mm(x, parameters[0].tensor).sum();
  set_gradients(parameters, 0);
  optimizer->step(kRate);
  EXPECT_THROW(y.backward(), c10::Error);
}

TEST_F(OptimizerMemoryTest, GradientNormIsThatOfAllGradientsInDouble) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    auto parameters = make_parameters(dtype);
    parameters.push_back({"long", torch::zeros({100'003}, dtype).set_requires_grad(true)});
    EXPECT_EQ(gradient_norm(parameters), 0.0);
    set_gradients(parameters, 3);
    parameters[0].tensor.mutable_grad() =
        parameters[0].tensor.grad().contiguous(at::MemoryFormat::ChannelsLast);
    parameters[4].tensor.mutable_grad() = torch::Tensor();
    double sum = 0.0;
    for (const auto& p : parameters) {
      if (p.tensor.grad().defined()) sum += p.tensor.grad().to(torch::kDouble).square().sum().item<double>();
    }
    EXPECT_NEAR(gradient_norm(parameters), std::sqrt(sum), 1e-13 * std::sqrt(sum));
  }
}

TEST_F(OptimizerMemoryTest, GradientNormNeitherOverflowsNorHidesWhatIsNotFinite) {
  auto parameters = make_parameters();
  set_gradients(parameters, 0);
  parameters[3].tensor.mutable_grad()[6] = 1e30;
  EXPECT_NEAR(gradient_norm(parameters), 1e30, 1e24);
  parameters[3].tensor.mutable_grad()[6] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(gradient_norm(parameters), std::numeric_limits<double>::infinity());
  parameters[3].tensor.mutable_grad()[6] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(gradient_norm(parameters)));
}

TEST_F(OptimizerMemoryTest, ScaledGradientsAreTheGradientsTimesTheFactor) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    auto parameters = make_parameters(dtype);
    set_gradients(parameters, 0);
    parameters[4].tensor.mutable_grad() = torch::Tensor();
    std::vector<torch::Tensor> expected;
    for (size_t i = 0; i < 4; ++i) expected.push_back(parameters[i].tensor.grad() * 0.25);
    scale_gradients(parameters, 0.25);
    for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(torch::equal(parameters[i].tensor.grad(), expected[i]));
    EXPECT_FALSE(parameters[4].tensor.grad().defined());
  }
}

}  // namespace
}  // namespace renorm::train
