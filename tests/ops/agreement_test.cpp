// The operators against the composite of ATen operations in double, differentiated by autograd.
#include <cmath>

#include "cases.h"
#include "support/effort.h"

namespace renorm::test {
namespace {

constexpr int64_t kCases = 600;
// Where the value before ReLU is this small, rounding may decide whether a gradient passes, so it is set to
// 0.
constexpr double kKink = 1e-3;

struct Results {
  at::Tensor output;
  at::Tensor dinput;
  at::Tensor dweight;
  at::Tensor dbias;
  at::Tensor dresidual;
};

Results differentiate(const at::Tensor& output, const Tensors& t) {
  torch::autograd::variable_list inputs{t.input};
  if (t.weight.defined()) inputs.push_back(t.weight);
  if (t.bias.defined()) inputs.push_back(t.bias);
  if (t.residual.defined()) inputs.push_back(t.residual);
  const auto grads = torch::autograd::grad({output}, inputs, {t.grad_output});
  auto next = grads.begin();
  const auto take = [&next](const at::Tensor& of) { return of.defined() ? *next++ : at::Tensor(); };
  Results results{output.detach(), take(t.input), {}, {}, {}};
  results.dweight = take(t.weight);
  results.dbias = take(t.bias);
  results.dresidual = take(t.residual);
  return results;
}

// Detached copies in double, contiguous; those that have a gradient require it.
Tensors in_double(const Tensors& t) {
  Tensors wide = converted(
      t, [](const at::Tensor& tensor) { return tensor.detach().to(at::kDouble).contiguous().clone(); });
  wide.input.requires_grad_();
  if (wide.weight.defined()) wide.weight.requires_grad_();
  if (wide.bias.defined()) wide.bias.requires_grad_();
  if (wide.residual.defined()) wide.residual.requires_grad_();
  return wide;
}

Tensors requiring_grad(const Tensors& t) {
  Tensors leaves = t;
  leaves.input.requires_grad_();
  if (leaves.weight.defined()) leaves.weight.requires_grad_();
  if (leaves.bias.defined()) leaves.bias.requires_grad_();
  if (leaves.residual.defined()) leaves.residual.requires_grad_();
  return leaves;
}

ops::BatchRenormResult composite(const Tensors& t, ops::BatchRenormArguments arguments) {
  arguments.residual = t.residual;
  return ops::batch_renorm_composite(t.input, t.weight, t.bias, t.running_mean, t.running_std, arguments);
}

at::Tensor inference_formula(const Tensors& t, Activation activation) {
  const auto spread = [&](const at::Tensor& tensor) {
    std::vector<int64_t> sizes(static_cast<size_t>(t.input.dim()), 1);
    sizes[1] = -1;
    return tensor.view(sizes);
  };
  at::Tensor y = (t.input - spread(t.running_mean)) / spread(t.running_std);
  if (t.weight.defined()) y = y * spread(t.weight);
  if (t.bias.defined()) y = y + spread(t.bias);
  if (t.residual.defined()) y = y + t.residual;
  return activation == Activation::kRelu ? y.relu() : y;
}

// Sets the gradient to 0 where `before`, the values before ReLU, are near 0.
void avoid_kink(const at::Tensor& before, Memory memory, Tensors* t) {
  const at::Tensor far = before.detach().abs() > kKink;
  t->grad_output = place(t->grad_output * far.to(t->grad_output.scalar_type()), memory);
}

// The gradient of a sum is one repeated value, so it cannot be 0 only where ReLU has no derivative.
Case without_ambiguity(Case c) {
  if (c.grad_memory == Memory::kExpandedFromOneValue || c.grad_memory == Memory::kExpanded) {
    c.arguments.activation = Activation::kNone;
  }
  return c;
}

void expect_memory_order(const at::Tensor& actual, const Tensors& t, Memory memory) {
  const bool dense =
      memory == Memory::kContiguous || memory == Memory::kMisaligned || memory == Memory::kChannelsLast;
  if (dense) {
    EXPECT_TRUE(same_strides(actual, t.input)) << actual.strides() << " for " << t.input.strides();
  } else {
    EXPECT_TRUE(actual.is_contiguous(t.input.suggest_memory_format())) << actual.strides();
  }
}

void expect_results(const Results& actual, const Results& expected, const Tensors& t, const Case& c) {
  const double narrow = tolerance(c.type);
  const double wide = tolerance(statistics_of(c.type));
  // A sum of m terms of size one is about this large, unless they cancel, as for the gradient of a sum.
  const int64_t terms = t.input.numel() / t.input.size(1);
  const double scale_of_sum = std::sqrt(static_cast<double>(terms));
  EXPECT_EQ(actual.output.scalar_type(), c.type);
  EXPECT_EQ(actual.dinput.scalar_type(), c.type);
  EXPECT_LE(error_of(actual.output, expected.output), narrow);
  EXPECT_LE(error_of(actual.dinput, expected.dinput), narrow);
  if (c.has_weight) {
    EXPECT_EQ(actual.dweight.scalar_type(), statistics_of(c.type));
    EXPECT_LE(error_of(actual.dweight, expected.dweight, scale_of_sum), wide);
  }
  if (c.has_bias) {
    EXPECT_LE(error_of(actual.dbias, expected.dbias, scale_of_sum), wide);
  }
  if (c.has_residual) {
    EXPECT_EQ(actual.dresidual.scalar_type(), c.type);
    EXPECT_LE(error_of(actual.dresidual, expected.dresidual), narrow);
  }
  expect_memory_order(actual.output, t, c.input_memory);
  expect_memory_order(actual.dinput, t, c.input_memory);
}

class Agreement : public Seeded {
 protected:
  // Runs `check` on generated cases until all are done or one fails.
  template <class Check>
  void for_each_case(uint64_t seed, const Check& check) {
    Random random(seed);
    for (int64_t i = 0; i < case_count(kCases) && !HasFailure(); ++i) {
      const Case c = without_ambiguity(draw_case(random));
      SCOPED_TRACE("case " + std::to_string(i) + ": " + describe(c));
      check(c);
    }
  }
};

TEST_F(Agreement, TrainingIsTheCompositeWithItsGradients) {
  for_each_case(1, [](const Case& c) {
    Tensors t = make_tensors(c);
    if (c.arguments.activation == Activation::kRelu) {
      ops::BatchRenormArguments linear = c.arguments;
      linear.activation = Activation::kNone;
      const Tensors wide = in_double(t);
      const auto before = composite(wide, linear);
      avoid_kink(before.output, c.grad_memory, &t);
    }
    const Tensors wide = in_double(t);
    const auto expected = composite(wide, c.arguments);
    const Tensors leaves = requiring_grad(t);
    const auto actual = train(leaves, c.arguments);
    expect_results(differentiate(actual.output, leaves), differentiate(expected.output, wide), t, c);
    const double bound = tolerance(statistics_of(c.type));
    EXPECT_LE(error_of(actual.batch_mean.to(at::kDouble) + actual.batch_mean_low, expected.batch_mean),
              bound);
    EXPECT_LE(error_of(actual.batch_std, expected.batch_std), bound);
    EXPECT_LE(error_of(actual.r, expected.r), bound);
    EXPECT_LE(error_of(actual.d, expected.d), bound);
    EXPECT_EQ(actual.r.scalar_type(), statistics_of(c.type));
  });
}

TEST_F(Agreement, InferenceIsTheFormulaWithItsGradients) {
  for_each_case(2, [](Case c) {
    c.has_averages = true;
    Tensors t = make_tensors(c);
    if (c.arguments.activation == Activation::kRelu) {
      avoid_kink(inference_formula(in_double(t), Activation::kNone), c.grad_memory, &t);
    }
    const Tensors wide = in_double(t);
    const Tensors leaves = requiring_grad(t);
    expect_results(differentiate(infer(leaves, c.arguments.activation), leaves),
                   differentiate(inference_formula(wide, c.arguments.activation), wide), t, c);
  });
}

TEST_F(Agreement, SumThroughReluIsTheComposite) {
  for (const auto memory : {Memory::kContiguous, Memory::kChannelsLast}) {
    Case c;
    c.type = at::kDouble;
    c.sizes = {6, 5, 7, 3};
    c.input_memory = memory;
    c.arguments.activation = Activation::kRelu;
    const Tensors leaves = requiring_grad(make_tensors(c));
    const Tensors wide = in_double(leaves);
    train(leaves, c.arguments).output.sum().backward();
    const auto expected = composite(wide, c.arguments);
    expected.output.sum().backward();
    EXPECT_LE(error_of(leaves.input.grad(), wide.input.grad()), tolerance(at::kDouble));
    EXPECT_LE(error_of(leaves.weight.grad(), wide.weight.grad()), tolerance(at::kDouble));
    EXPECT_LE(error_of(leaves.bias.grad(), wide.bias.grad()), tolerance(at::kDouble));
  }
}

// Compilers and hooks of saved tensors change the strides of the input between forward and backward.
TEST_F(Agreement, GradientsOfAResidualDoNotDependOnTheStridesInTheBackward) {
  for (const auto type : {at::kFloat, at::kHalf}) {
    for (const bool forward_is_channels_last : {false, true}) {
      SCOPED_TRACE(::testing::Message() << type << " " << forward_is_channels_last);
      Case c;
      c.type = type;
      c.sizes = {3, 5, 4, 7};
      c.has_residual = true;
      c.arguments.activation = Activation::kRelu;
      Tensors t = make_tensors(c);
      Tensors other = t;
      (forward_is_channels_last ? t : other).input = t.input.contiguous(at::MemoryFormat::ChannelsLast);
      const auto forward = train(t, c.arguments);
      const auto expected = backward(t, forward, c.arguments);
      const auto actual = backward(other, forward, c.arguments);
      EXPECT_LE(error_of(actual.input, expected.input), tolerance(type));
      EXPECT_LE(error_of(actual.weight, expected.weight), tolerance(at::kFloat));
      EXPECT_TRUE(at::equal(actual.residual, expected.residual));
      EXPECT_TRUE(same_strides(actual.input, other.input));
      EXPECT_TRUE(same_strides(actual.residual, other.input));
    }
  }
}

}  // namespace
}  // namespace renorm::test
