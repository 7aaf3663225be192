// Gradients, saved tensors and rejected uses of autograd.
#include "cases.h"

namespace renorm::test {
namespace {

using torch::autograd::variable_list;

// Both operators, as functions of the tensors of a case.
const std::vector<std::pair<const char*, std::function<at::Tensor(const Tensors&)>>>& operators() {
  static const std::vector<std::pair<const char*, std::function<at::Tensor(const Tensors&)>>> all{
      {"training", [](const Tensors& t) { return train(t, {}).output; }},
      {"inference", [](const Tensors& t) { return infer(t, Activation::kNone); }}};
  return all;
}

Tensors make_small(at::ScalarType type = at::kDouble) {
  Case c;
  c.type = type;
  c.sizes = {4, 3, 5};
  return make_tensors(c);
}

class Autograd : public Seeded {};

// Calls the node itself: the engine would drop gradients that are not required.
TEST_F(Autograd, ComputesOnlyRequiredGradients) {
  for (const auto type : {at::kFloat, at::kHalf}) {
    for (const auto& [name, op] : operators()) {
      for (int mask = 1; mask < 8; ++mask) {
        SCOPED_TRACE(::testing::Message() << name << " " << mask);
        const Tensors t = make_small(type);
        t.input.requires_grad_((mask & 1) != 0);
        t.weight.requires_grad_((mask & 2) != 0);
        t.bias.requires_grad_((mask & 4) != 0);
        const auto node = op(t).grad_fn();
        ASSERT_NE(node, nullptr);
        const at::NoGradGuard no_grad;
        variable_list grad_outputs(node->num_inputs());
        grad_outputs[0] = t.grad_output;
        const variable_list grads = (*node)(std::move(grad_outputs));
        ASSERT_GE(grads.size(), 3U);
        EXPECT_EQ(grads[0].defined(), (mask & 1) != 0);
        EXPECT_EQ(grads[1].defined(), (mask & 2) != 0);
        EXPECT_EQ(grads[2].defined(), (mask & 4) != 0);
      }
    }
  }
}

TEST_F(Autograd, GradientOfOneDoesNotDependOnWhichOthersAreRequired) {
  for (const auto& [name, op] : operators()) {
    SCOPED_TRACE(name);
    const Tensors t = make_small();
    const auto leaf = [](const at::Tensor& tensor) { return tensor.clone().requires_grad_(); };
    const Tensors all{leaf(t.input), {}, leaf(t.weight), leaf(t.bias), t.running_mean, t.running_std, {}};
    op(all).backward(t.grad_output);
    Tensors one = t;
    one.input = leaf(t.input);
    op(one).backward(t.grad_output);
    EXPECT_TRUE(at::equal(one.input.grad(), all.input.grad()));
    EXPECT_FALSE(one.weight.grad().defined());
    one = t;
    one.weight = leaf(t.weight);
    op(one).backward(t.grad_output);
    EXPECT_TRUE(at::equal(one.weight.grad(), all.weight.grad()));
    EXPECT_FALSE(one.input.grad().defined());
    one = t;
    one.bias = leaf(t.bias);
    op(one).backward(t.grad_output);
    EXPECT_TRUE(at::equal(one.bias.grad(), all.bias.grad()));
  }
}

TEST_F(Autograd, BiasAloneOrWeightAloneHasItsGradient) {
  for (const auto& [name, op] : operators()) {
    SCOPED_TRACE(name);
    Tensors t = make_small();
    t.weight = at::Tensor();
    t.bias.requires_grad_();
    op(t).backward(t.grad_output);
    EXPECT_LE(error_of(t.bias.grad(), t.grad_output.sum(at::IntArrayRef{0, 2})), tolerance(at::kDouble));
    t = make_small();
    t.bias = at::Tensor();
    t.weight.requires_grad_();
    const at::Tensor output = op(t);
    output.backward(t.grad_output);
    const at::Tensor x_hat = output.detach() / t.weight.detach().view({-1, 1});
    EXPECT_LE(error_of(t.weight.grad(), (t.grad_output * x_hat).sum(at::IntArrayRef{0, 2})),
              tolerance(at::kDouble));
  }
}

TEST_F(Autograd, LeavesNoGraphWithoutGradients) {
  for (const auto& [name, op] : operators()) {
    SCOPED_TRACE(name);
    const Tensors t = make_small();
    EXPECT_FALSE(op(t).requires_grad());
    t.input.requires_grad_();
    const at::NoGradGuard no_grad;
    const at::Tensor output = op(t);
    EXPECT_FALSE(output.requires_grad());
    EXPECT_EQ(output.grad_fn(), nullptr);
  }
}

TEST_F(Autograd, StatisticsHaveNoGradient) {
  for (const auto type : {at::kFloat, at::kHalf}) {
    Tensors t = make_small(type);
    t.input.requires_grad_();
    t.residual = at::zeros_like(t.input);
    ops::BatchRenormArguments arguments;
    arguments.activation = Activation::kRelu;
    const auto result = train(t, arguments);
    EXPECT_TRUE(result.output.requires_grad());
    EXPECT_GT(result.mask.numel(), 0);
    for (const at::Tensor& statistic :
         {result.batch_mean, result.batch_mean_low, result.batch_std, result.r, result.d, result.mask}) {
      EXPECT_FALSE(statistic.requires_grad());
    }
  }
}

// Forward mode would need formulas of its own; without this error tangents would silently be zero.
TEST_F(Autograd, RejectsForwardModeInOneSentence) {
  for (const auto& [name, op] : operators()) {
    for (const bool requires_grad : {true, false}) {
      for (int which = 0; which < 6; ++which) {
        SCOPED_TRACE(::testing::Message() << name << " requires_grad " << requires_grad << " " << which);
        Tensors t = make_small();
        t.residual = at::randn_like(t.input);
        t.weight.requires_grad_(requires_grad);
        const auto level = torch::autograd::ForwardADLevel::get_next_idx();
        at::Tensor* argument = std::vector<at::Tensor*>{&t.input,    &t.weight,       &t.bias,
                                                        &t.residual, &t.running_mean, &t.running_std}[which];
        *argument = at::_make_dual(*argument, at::ones_like(*argument), static_cast<int64_t>(level));
        const std::string message = message_of([&] { op(t); });
        EXPECT_NE(message.find("forward-mode differentiation is not supported"), std::string::npos)
            << message;
        EXPECT_EQ(message.find('\n'), std::string::npos) << message;
        torch::autograd::ForwardADLevel::release_idx(level);
      }
    }
  }
}

TEST_F(Autograd, RejectsForwardModeOfMovingAveragesAndOfTheBackward) {
  for (int which = 0; which < 5; ++which) {
    SCOPED_TRACE(which);
    const Tensors t = make_small();
    const ops::BatchRenormResult result = train(t, {});
    at::Tensor running_mean = t.running_mean.clone(), running_std = t.running_std.clone(),
               batch_mean = result.batch_mean.clone(), batch_std = result.batch_std.clone(),
               gradient = at::ones_like(t.input);
    const auto level = torch::autograd::ForwardADLevel::get_next_idx();
    at::Tensor* argument =
        std::vector<at::Tensor*>{&running_mean, &running_std, &batch_mean, &batch_std, &gradient}[which];
    *argument = at::_make_dual(*argument, at::ones_like(*argument), static_cast<int64_t>(level));
    const std::string message = message_of([&] {
      if (which < 4) {
        ops::move_averages_(running_mean, running_std, at::zeros({}, at::kLong), batch_mean, batch_std, 0.5);
      } else {
        ops::batch_renorm_backward(gradient, t.input, t.weight, t.bias, result, {});
      }
    });
    EXPECT_NE(message.find("forward-mode differentiation is not supported"), std::string::npos) << message;
    torch::autograd::ForwardADLevel::release_idx(level);
  }
}

// The bias matters to the mask of the ReLU only, and with a residual the forward keeps that mask.
TEST_F(Autograd, SavesTheBiasForTheReluWithoutResidualOnly) {
  for (const auto activation : {Activation::kNone, Activation::kRelu}) {
    for (const bool has_residual : {false, true}) {
      Tensors t = make_small();
      t.bias = t.bias.clone().requires_grad_() * 1.0;
      if (has_residual) t.residual = at::randn_like(t.input).requires_grad_() * 1.0;
      ops::BatchRenormArguments arguments;
      arguments.activation = activation;
      const at::Tensor output = train(t, arguments).output;
      {
        const at::NoGradGuard no_grad;
        t.bias.add_(1.0);
        if (has_residual) t.residual.add_(1.0);
      }
      const std::string message = message_of([&] { output.backward(t.grad_output); });
      EXPECT_EQ(message.empty(), activation == Activation::kNone || has_residual) << message;
    }
  }
}

TEST_F(Autograd, InferenceGradientUsesTheAveragesOfItsForward) {
  Tensors t = make_small();
  const auto gradients = [&](bool move) {
    const Tensors leaves = converted(t, [](const at::Tensor& tensor) { return tensor.clone(); });
    leaves.input.requires_grad_();
    leaves.weight.requires_grad_();
    const at::Tensor output = infer(leaves, Activation::kNone);
    if (move) {
      leaves.running_mean.add_(1.0);
      leaves.running_std.mul_(2.0);
    }
    return torch::autograd::grad({output}, {leaves.input, leaves.weight}, {t.grad_output});
  };
  const auto still = gradients(false);
  const auto moved = gradients(true);
  EXPECT_TRUE(at::equal(moved[0], still[0]));
  EXPECT_TRUE(at::equal(moved[1], still[1]));
}

TEST_F(Autograd, TrainingGradientUsesTheAveragesOfItsForward) {
  Tensors t = make_small();
  const ops::BatchRenormArguments arguments{1e-5, 3.0, 5.0};
  t.input.requires_grad_();
  const auto still = torch::autograd::grad({train(t, arguments).output}, {t.input}, {t.grad_output});
  const at::Tensor output = train(t, arguments).output;
  t.running_mean.add_(1.0);
  t.running_std.mul_(2.0);
  EXPECT_TRUE(at::equal(torch::autograd::grad({output}, {t.input}, {t.grad_output})[0], still[0]));
}

TEST_F(Autograd, RejectsInputThatChangedSinceTheForward) {
  for (const auto& [name, op] : operators()) {
    SCOPED_TRACE(name);
    Tensors t = make_small();
    const at::Tensor leaf = t.input.clone().requires_grad_();
    t.input = leaf * 2.0;
    const at::Tensor output = op(t);
    t.input.add_(1.0);
    const std::string message = message_of([&] { output.backward(t.grad_output); });
    EXPECT_NE(message.find("modified by an inplace operation"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace renorm::test
