// Derivatives of gradients (create_graph) against central differences in double, with r and d held fixed.
#include "cases.h"

namespace renorm::test {
namespace {

constexpr double kStep = 1e-5;
// The step's square times third derivatives of size one, and rounding (1e-16) over the step, times sums of
// about a hundred values.
constexpr double kDifferenceTolerance = 1e-7;
// More than a step changes any value, so that no difference crosses the point where ReLU has no derivative.
constexpr double kKink = 0.02;

using torch::autograd::variable_list;

// Limits so far from the statistics that r and d stay at them when the input changes by a step.
ops::BatchRenormArguments at_the_limits(int64_t group_size, Grouping grouping, Activation activation) {
  ops::BatchRenormArguments arguments{1e-3, 1.5, 0.7, group_size, grouping};
  arguments.activation = activation;
  return arguments;
}

struct Problem {
  Tensors t;
  std::function<at::Tensor(const Tensors&)> op;
  variable_list directions;  // of the gradients of input, weight, bias and residual
};

// The gradients of the loss sum(op * grad_output), dotted with fixed directions.
at::Tensor gradient_along(const Problem& problem, const Tensors& t, bool create_graph) {
  const variable_list leaves{t.input, t.weight, t.bias, t.residual};
  const auto grads =
      torch::autograd::grad({problem.op(t)}, leaves, {t.grad_output}, /*retain_graph=*/true, create_graph);
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (size_t i = 0; i < grads.size(); ++i) sum = sum + (grads[i] * problem.directions[i]).sum();
  return sum;
}

Tensors leaves_of(const Tensors& t) {
  Tensors leaves = converted(t, [](const at::Tensor& tensor) { return tensor.detach().clone(); });
  for (at::Tensor* leaf :
       {&leaves.input, &leaves.weight, &leaves.bias, &leaves.residual, &leaves.grad_output}) {
    leaf->requires_grad_();
  }
  return leaves;
}

at::Tensor differences(const Problem& problem, at::Tensor Tensors::*variable) {
  const Tensors t = leaves_of(problem.t);
  const at::Tensor values = (t.*variable).detach();
  at::Tensor result = at::empty_like(values);
  for (int64_t i = 0; i < values.numel(); ++i) {
    double* value = values.data_ptr<double>() + i;
    const double before = *value;
    *value = before + kStep;
    const double above = gradient_along(problem, t, false).item<double>();
    *value = before - kStep;
    const double below = gradient_along(problem, t, false).item<double>();
    *value = before;
    result.data_ptr<double>()[i] = (above - below) / (2.0 * kStep);
  }
  return result;
}

void expect_second_derivatives(const Problem& problem) {
  const Tensors t = leaves_of(problem.t);
  const variable_list variables{t.input, t.weight, t.bias, t.residual, t.grad_output};
  const auto grads =
      torch::autograd::grad({gradient_along(problem, t, true)}, variables, {}, /*retain_graph=*/false,
                            /*create_graph=*/false, /*allow_unused=*/true);
  const auto expect = [&](size_t index, at::Tensor Tensors::*variable, const char* name) {
    const at::Tensor expected = differences(problem, variable);
    const at::Tensor actual = grads[index].defined() ? grads[index] : at::zeros_like(expected);
    EXPECT_LE(error_of(actual, expected), kDifferenceTolerance) << name;
  };
  expect(0, &Tensors::input, "input");
  expect(1, &Tensors::weight, "weight");
  expect(2, &Tensors::bias, "bias");
  expect(3, &Tensors::residual, "residual");
  expect(4, &Tensors::grad_output, "grad_output");
}

Problem make_problem(const std::function<at::Tensor(const Tensors&)>& op) {
  Case c;
  c.type = at::kDouble;
  c.sizes = {6, 2, 4};
  c.has_residual = true;
  Problem problem{make_tensors(c), op, {}};
  problem.t.running_std.fill_(1e-2);
  problem.t.running_mean.fill_(1e4);
  for (const at::Tensor& like : {problem.t.input, problem.t.weight, problem.t.bias, problem.t.residual}) {
    problem.directions.push_back(at::randn_like(like));
  }
  return problem;
}

// No gradient where the value before the ReLU is near its kink.
void avoid_kink(const at::Tensor& before, Problem* problem) {
  const at::Tensor near = before.abs() <= kKink;
  problem->t.residual = at::where(near, problem->t.residual + 1.0, problem->t.residual);
}

class SecondDerivative : public Seeded {};

void expect_second_derivatives_of_training(int64_t group_size, Grouping grouping) {
  for (const auto activation : {Activation::kNone, Activation::kRelu}) {
    SCOPED_TRACE(::testing::Message() << "activation " << static_cast<int>(activation));
    const auto arguments = at_the_limits(group_size, grouping, activation);
    Problem problem = make_problem([arguments](const Tensors& t) { return train(t, arguments).output; });
    if (activation == Activation::kRelu) {
      avoid_kink(train(problem.t, at_the_limits(group_size, grouping, Activation::kNone)).output, &problem);
    }
    expect_second_derivatives(problem);
  }
}

TEST_F(SecondDerivative, OfTraining) { expect_second_derivatives_of_training(0, Grouping::kContiguous); }

TEST_F(SecondDerivative, OfTrainingInContiguousGroups) {
  expect_second_derivatives_of_training(3, Grouping::kContiguous);
}

TEST_F(SecondDerivative, OfTrainingInStridedGroups) {
  expect_second_derivatives_of_training(3, Grouping::kStrided);
}

TEST_F(SecondDerivative, OfInference) {
  for (const auto activation : {Activation::kNone, Activation::kRelu}) {
    Problem problem = make_problem([activation](const Tensors& t) { return infer(t, activation); });
    problem.t.running_std.fill_(1.5);
    problem.t.running_mean.fill_(0.5);
    if (activation == Activation::kRelu) avoid_kink(infer(problem.t, Activation::kNone), &problem);
    expect_second_derivatives(problem);
  }
}

// With create_graph the first gradient is the same, within rounding.
TEST_F(SecondDerivative, LeavesTheFirstAsItIs) {
  Random random(11);
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    Case c = draw_case(random);
    c.type = at::kDouble;
    SCOPED_TRACE(describe(c));
    const Tensors t = make_tensors(c);
    t.input.requires_grad_();
    const auto gradient = [&](bool create_graph) {
      return torch::autograd::grad({train(t, c.arguments).output}, {t.input}, {t.grad_output}, {},
                                   create_graph)[0];
    };
    EXPECT_LE(error_of(gradient(true), gradient(false)), tolerance(at::kDouble));
  }
}

// In float, at a mean of 10,000 standard deviations: one rounding of the mean would be a thousandth of one.
TEST_F(SecondDerivative, LeavesTheFirstOfDataFarFromZero) {
  Case c;
  c.sizes = {8, 3, 50};
  Tensors t = make_tensors(c);
  t.input = (t.input + 2e4).detach().requires_grad_();
  t.weight.requires_grad_();
  const auto gradients = [&](bool create_graph) {
    return torch::autograd::grad({train(t, {}).output}, {t.input, t.weight}, {t.grad_output}, {},
                                 create_graph);
  };
  const auto first = gradients(false);
  const auto again = gradients(true);
  EXPECT_LE(error_of(again[0], first[0]), 10.0 * tolerance(at::kFloat));
  EXPECT_LE(error_of(again[1], first[1]), 10.0 * tolerance(at::kFloat));
}

}  // namespace
}  // namespace renorm::test
