#include "train/optimizer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "base/errors.h"
#include "train/tensor_file.h"

namespace renorm::train {
namespace {

constexpr double kDoubleTolerance = 1e-12;
constexpr double kFloatTolerance = 1e-6;
constexpr double kRate = 0.01;

// Greatest difference relative to the greatest magnitude, which counts as no less than one.
double error(const torch::Tensor& actual, const torch::Tensor& expected) {
  const auto a = actual.detach().to(torch::kDouble);
  const auto e = expected.detach().to(torch::kDouble);
  return (a - e).abs().max().item<double>() / std::max(1.0, e.abs().max().item<double>());
}

// Shapes of weights, biases and scalars, with and without vector tails.
std::vector<NamedTensor> make_parameters(at::ScalarType dtype = torch::kFloat) {
  std::vector<NamedTensor> all;
  const std::vector<std::pair<std::string, std::vector<int64_t>>> shapes = {
      {"conv.weight", {5, 3, 3, 3}},
      {"pointwise.weight", {6, 4, 1, 1}},
      {"linear.weight", {7, 9}},
      {"linear.bias", {7}},
      {"one.bias", {1}}};
  for (const auto& [name, shape] : shapes) {
    all.push_back({name, torch::randn(shape, torch::dtype(dtype)).set_requires_grad(true)});
  }
  return all;
}

std::vector<NamedTensor> copies(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> all;
  for (const auto& p : parameters) {
    all.push_back({p.name, p.tensor.detach().clone().set_requires_grad(true)});
  }
  return all;
}

// The gradients of step `step`: the same for every set of parameters.
void set_gradients(std::vector<NamedTensor>& parameters, int64_t step) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + step));
  for (auto& p : parameters) {
    p.tensor.mutable_grad() =
        at::randn(p.tensor.sizes(), generator, torch::kDouble).to(p.tensor.scalar_type());
  }
}

bool same_bits(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  return encode_tensors(a) == encode_tensors(b);
}

OptimizerOptions options_of(const std::string& kind, double momentum, double weight_decay) {
  OptimizerOptions options;
  options.kind = kind;
  options.momentum = momentum;
  options.weight_decay = weight_decay;
  return options;
}

// LibTorch's optimiser with the weight decay in a group of its own.
std::unique_ptr<torch::optim::Optimizer> libtorch(const OptimizerOptions& o,
                                                  const std::vector<NamedTensor>& parameters) {
  std::vector<torch::Tensor> decaying;
  std::vector<torch::Tensor> exempt;
  for (const auto& p : parameters) (p.tensor.dim() >= 2 ? decaying : exempt).push_back(p.tensor);
  const auto build = [&](auto make_optimizer, auto options) {
    auto plain = options;
    options.weight_decay(o.weight_decay);
    plain.weight_decay(0.0);
    using Options = decltype(options);
    return make_optimizer(std::vector<torch::optim::OptimizerParamGroup>{
        {decaying, std::make_unique<Options>(options)}, {exempt, std::make_unique<Options>(plain)}});
  };
  using Made = std::unique_ptr<torch::optim::Optimizer>;
  if (o.kind == "rmsprop") {
    return build([](auto groups) -> Made { return std::make_unique<torch::optim::RMSprop>(groups); },
                 torch::optim::RMSpropOptions(kRate).alpha(o.alpha).eps(o.eps).momentum(o.momentum));
  }
  if (o.kind == "sgd") {
    const auto defaults = torch::optim::SGDOptions(kRate).momentum(o.momentum);
    return build([&](auto groups) -> Made { return std::make_unique<torch::optim::SGD>(groups, defaults); },
                 defaults);
  }
  return build([](auto groups) -> Made { return std::make_unique<torch::optim::AdamW>(groups); },
               torch::optim::AdamWOptions(kRate).betas({o.beta1, o.beta2}).eps(o.eps));
}

// A learning rate that changes from step to step.
double rate_at(int64_t step) { return kRate * (1.0 + 0.5 * std::sin(static_cast<double>(step))); }

void expect_libtorchs(const OptimizerOptions& options, at::ScalarType dtype) {
  SCOPED_TRACE(options.kind + " momentum " + std::to_string(options.momentum) + " decay " +
               std::to_string(options.weight_decay) + " " + c10::toString(dtype));
  auto ours = make_parameters(dtype);
  auto theirs = copies(ours);
  const auto optimizer = make_optimizer(options, ours);
  const auto reference = libtorch(options, theirs);
  for (int64_t step = 0; step < 100; ++step) {
    set_gradients(ours, step);
    set_gradients(theirs, step);
    for (auto& group : reference->param_groups()) group.options().set_lr(rate_at(step));
    optimizer->step(rate_at(step));
    reference->step();
  }
  const double tolerance = dtype == torch::kDouble ? kDoubleTolerance : kFloatTolerance;
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_LE(error(ours[i].tensor, theirs[i].tensor), tolerance) << ours[i].name;
  }
}

class OptimizerTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1702); }
};

const std::vector<OptimizerOptions>& all_kinds() {
  static const std::vector<OptimizerOptions> all = {
      options_of("rmsprop-tf", 0.0, 0.0), options_of("rmsprop-tf", 0.9, 0.01),
      options_of("rmsprop", 0.0, 0.0),    options_of("rmsprop", 0.9, 0.01),
      options_of("sgd", 0.0, 0.01),       options_of("sgd", 0.9, 0.0),
      options_of("adamw", 0.0, 0.01)};
  return all;
}

TEST_F(OptimizerTest, IsLibTorchsButForTensorFlowsRmsprop) {
  for (const std::string kind : {"rmsprop", "sgd", "adamw"}) {
    for (const double momentum : {0.0, 0.9}) {
      for (const double decay : {0.0, 0.05}) {
        for (const auto dtype : {torch::kDouble, torch::kFloat}) {
          expect_libtorchs(options_of(kind, momentum, decay), dtype);
        }
      }
    }
  }
}

TEST_F(OptimizerTest, RmspropTfIsTensorFlowsFormula) {
  for (const double momentum : {0.0, 0.9}) {
    for (const double decay : {0.0, 0.05}) {
      auto options = options_of("rmsprop-tf", momentum, decay);
      options.eps = 0.1;  // large, so that its place under the root shows
      auto parameters = make_parameters(torch::kDouble);
      const auto start = copies(parameters);
      const auto optimizer = make_optimizer(options, parameters);
      std::vector<std::vector<double>> seen(parameters.size());  // gradients of element 0 by step
      for (int64_t step = 0; step < 100; ++step) {
        set_gradients(parameters, step);
        for (size_t i = 0; i < parameters.size(); ++i) {
          seen[i].push_back(parameters[i].tensor.grad().flatten()[0].item<double>());
        }
        optimizer->step(rate_at(step));
      }
      for (size_t i = 0; i < parameters.size(); ++i) {
        const double applied_decay = parameters[i].tensor.dim() >= 2 ? decay : 0.0;
        double value = start[i].tensor.detach().flatten()[0].item<double>();
        double mean_square = 1.0;
        double buffer = 0.0;
        for (int64_t step = 0; step < 100; ++step) {
          const double g = seen[i][static_cast<size_t>(step)] + applied_decay * value;
          mean_square = 0.9 * mean_square + 0.1 * g * g;
          buffer = momentum * buffer + rate_at(step) * g / std::sqrt(mean_square + 0.1);
          value -= buffer;
        }
        EXPECT_NEAR(parameters[i].tensor.detach().flatten()[0].item<double>(), value, kDoubleTolerance);
      }
    }
  }
}

TEST_F(OptimizerTest, WeightDecayLeavesVectorsAlone) {
  for (const std::string kind : {"rmsprop-tf", "rmsprop", "sgd", "adamw"}) {
    auto parameters = make_parameters();
    const auto before = copies(parameters);
    const auto optimizer = make_optimizer(options_of(kind, 0.0, 0.1), parameters);
    for (auto& p : parameters) p.tensor.mutable_grad() = torch::zeros_like(p.tensor.detach());
    optimizer->step(kRate);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto now = parameters[i].tensor.detach();
      const auto then = before[i].tensor.detach();
      if (now.dim() < 2) {
        EXPECT_TRUE(torch::equal(now, then)) << kind << " " << parameters[i].name;
      } else {
        EXPECT_TRUE(now.abs().lt(then.abs()).all().item<bool>()) << kind << " " << parameters[i].name;
      }
    }
  }
}

TEST_F(OptimizerTest, GoesOnExactlyFromRestoredState) {
  for (const auto& options : all_kinds()) {
    auto whole = make_parameters();
    auto first_part = copies(whole);
    const auto uninterrupted = make_optimizer(options, whole);
    for (int64_t step = 0; step < 20; ++step) {
      set_gradients(whole, step);
      uninterrupted->step(rate_at(step));
    }
    auto before = make_optimizer(options, first_part);
    for (int64_t step = 0; step < 10; ++step) {
      set_gradients(first_part, step);
      before->step(rate_at(step));
    }
    const std::string saved = encode_tensors(before->state());
    auto second_part = copies(first_part);
    before.reset();
    const auto after = make_optimizer(options, second_part);
    restore_tensors(saved, "optimizer.safetensors", after->state());
    for (int64_t step = 10; step < 20; ++step) {
      set_gradients(second_part, step);
      after->step(rate_at(step));
    }
    EXPECT_TRUE(same_bits(second_part, whole)) << options.kind;
    EXPECT_TRUE(same_bits(after->state(), uninterrupted->state())) << options.kind;
  }
}

TEST_F(OptimizerTest, LeavesParametersWithoutGradientAlone) {
  for (const auto& options : all_kinds()) {
    auto parameters = make_parameters();
    const auto before = copies(parameters);
    const auto optimizer = make_optimizer(options, parameters);
    const std::string state_before = encode_tensors(optimizer->state());
    optimizer->step(kRate);
    EXPECT_TRUE(same_bits(parameters, before)) << options.kind;
    EXPECT_EQ(encode_tensors(optimizer->state()), state_before) << options.kind;

    set_gradients(parameters, 0);
    parameters[2].tensor.mutable_grad() = torch::Tensor();
    optimizer->step(kRate);
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(torch::equal(parameters[i].tensor, before[i].tensor), i == 2) << options.kind << " " << i;
    }
  }
}

TEST_F(OptimizerTest, LearningRateZeroLeavesTheBits) {
  for (const auto& options : all_kinds()) {
    auto parameters = make_parameters();
    const auto before = copies(parameters);
    const auto optimizer = make_optimizer(options, parameters);
    for (int64_t step = 0; step < 5; ++step) {
      set_gradients(parameters, step);
      optimizer->step(0.0);
    }
    EXPECT_TRUE(same_bits(parameters, before)) << options.kind;
  }
}

TEST_F(OptimizerTest, StateIsCompleteAndNamedBeforeTheFirstStep) {
  const auto names = [&](const OptimizerOptions& options) {
    std::vector<std::string> all;
    for (const auto& named : make_optimizer(options, {make_parameters()[0]})->state())
      all.push_back(named.name);
    return all;
  };
  using Names = std::vector<std::string>;
  const std::string p = "conv.weight.";
  EXPECT_EQ(names(options_of("rmsprop-tf", 0.0, 0.0)), Names({p + "mean_square"}));
  EXPECT_EQ(names(options_of("rmsprop-tf", 0.9, 0.0)), Names({p + "mean_square", p + "momentum"}));
  EXPECT_EQ(names(options_of("rmsprop", 0.9, 0.0)), Names({p + "mean_square", p + "momentum"}));
  EXPECT_EQ(names(options_of("sgd", 0.0, 0.0)), Names());
  EXPECT_EQ(names(options_of("sgd", 0.9, 0.0)), Names({p + "momentum"}));
  EXPECT_EQ(names(options_of("adamw", 0.0, 0.0)),
            Names({p + "mean_gradient", p + "mean_square", p + "step"}));
}

// The same parameter in memory orders of its own for value, gradient and state.
TEST_F(OptimizerTest, OrderOfMemoryDoesNotMatter) {
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
    EXPECT_TRUE(torch::equal(last[0].tensor, plain[0].tensor)) << options.kind;
    // These go through double and are rounded at other places.
    EXPECT_LE(error(mixed[0].tensor, plain[0].tensor), kFloatTolerance) << options.kind;
    EXPECT_LE(error(strided[0].tensor, plain[0].tensor), kFloatTolerance) << options.kind;
  }
}

TEST_F(OptimizerTest, GoesOnWhenTheModelMovesToAnotherOrderOfMemory) {
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
    EXPECT_LE(error(moved[0].tensor, plain[0].tensor), kFloatTolerance) << options.kind;
  }
}

// Sixteen bits hold the parameter, not the state: a step of a thousandth of it must not vanish from there.
TEST_F(OptimizerTest, NarrowParametersHaveFloatState) {
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

TEST_F(OptimizerTest, NumberOfThreadsDoesNotChangeTheBits) {
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
TEST_F(OptimizerTest, ABackwardPassThatNeedsTheOldValuesFails) {
  auto parameters = std::vector<NamedTensor>{{"w", torch::randn({3, 3}).set_requires_grad(true)}};
  const auto optimizer = make_optimizer(options_of("sgd", 0.0, 0.0), parameters);
  const auto x = torch::randn({2, 3}).set_requires_grad(true);
  const auto y = torch::mm(x, parameters[0].tensor).sum();
  set_gradients(parameters, 0);
  optimizer->step(kRate);
  EXPECT_THROW(y.backward(), c10::Error);
}

TEST_F(OptimizerTest, UnknownKindIsRefusedWithTheNearest) {
  try {
    make_optimizer(options_of("rmsprop-ft", 0.0, 0.0), {});
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("rmsprop-ft"), std::string::npos) << message;
    EXPECT_NE(message.find("rmsprop-tf"), std::string::npos) << message;
  }
}

TEST_F(OptimizerTest, GradientNormIsThatOfAllGradientsInDouble) {
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

TEST_F(OptimizerTest, GradientNormNeitherOverflowsNorHidesWhatIsNotFinite) {
  auto parameters = make_parameters();
  set_gradients(parameters, 0);
  parameters[3].tensor.mutable_grad()[6] = 1e30;
  EXPECT_NEAR(gradient_norm(parameters), 1e30, 1e24);
  parameters[3].tensor.mutable_grad()[6] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(gradient_norm(parameters), std::numeric_limits<double>::infinity());
  parameters[3].tensor.mutable_grad()[6] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(gradient_norm(parameters)));
}

TEST_F(OptimizerTest, ScaledGradientsAreTheGradientsTimesTheFactor) {
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
