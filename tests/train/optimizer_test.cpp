// The results of the update rules.
#include <memory>

#include "base/errors.h"
#include "optimizer_support.h"

namespace renorm::train {
namespace {

class OptimizerTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1702); }
};

// LibTorch's optimizer with the weight decay in a group of its own.
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
  if (o.kind == OptimizerKind::kRmsprop) {
    return build([](auto groups) -> Made { return std::make_unique<torch::optim::RMSprop>(groups); },
                 torch::optim::RMSpropOptions(kRate).alpha(o.alpha).eps(o.eps).momentum(o.momentum));
  }
  if (o.kind == OptimizerKind::kSgd) {
    const auto defaults = torch::optim::SGDOptions(kRate).momentum(o.momentum);
    return build([&](auto groups) -> Made { return std::make_unique<torch::optim::SGD>(groups, defaults); },
                 defaults);
  }
  return build([](auto groups) -> Made { return std::make_unique<torch::optim::AdamW>(groups); },
               torch::optim::AdamWOptions(kRate).betas({o.beta1, o.beta2}).eps(o.eps));
}

void expect_libtorchs(const OptimizerOptions& options, at::ScalarType dtype) {
  SCOPED_TRACE(name_of(options.kind) + " momentum " + std::to_string(options.momentum) + " decay " +
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
        // Towards zero; a small value may pass it.
        EXPECT_TRUE(((then - now) * then).gt(0.0).all().item<bool>()) << kind << " " << parameters[i].name;
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
    EXPECT_TRUE(same_bits(second_part, whole)) << name_of(options.kind);
    EXPECT_TRUE(same_bits(after->state(), uninterrupted->state())) << name_of(options.kind);
  }
}

TEST_F(OptimizerTest, LeavesParametersWithoutGradientAlone) {
  for (const auto& options : all_kinds()) {
    auto parameters = make_parameters();
    const auto before = copies(parameters);
    const auto optimizer = make_optimizer(options, parameters);
    const std::string state_before = encode_tensors(optimizer->state());
    optimizer->step(kRate);
    EXPECT_TRUE(same_bits(parameters, before)) << name_of(options.kind);
    EXPECT_EQ(encode_tensors(optimizer->state()), state_before) << name_of(options.kind);

    set_gradients(parameters, 0);
    parameters[2].tensor.mutable_grad() = torch::Tensor();
    optimizer->step(kRate);
    for (size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(torch::equal(parameters[i].tensor, before[i].tensor), i == 2)
          << name_of(options.kind) << " " << i;
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
    EXPECT_TRUE(same_bits(parameters, before)) << name_of(options.kind);
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

}  // namespace
}  // namespace renorm::train
