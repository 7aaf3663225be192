// Gradients against central differences in double. r and d are constants of the backward pass, so the
// differenced function holds them fixed.
#include "cases.h"

namespace renorm::test {
namespace {

constexpr double kStep = 1e-5;
// The step's square, and rounding (1e-16) over the step, times sums of about a hundred values.
constexpr double kDifferenceTolerance = 1e-8;
// More than a step changes any value, so that no difference crosses the point where ReLU has no derivative.
constexpr double kKink = 0.02;

using Function = std::function<at::Tensor(const Tensors&)>;

double loss(const Function& function, const Tensors& t) {
  return (function(t) * t.grad_output).sum().item<double>();
}

// d(loss)/d(variable), where `variable` is one of the tensors of t and contiguous.
at::Tensor differences(const Function& function, const Tensors& t, const at::Tensor& variable) {
  at::Tensor result = at::empty_like(variable);
  double* values = variable.data_ptr<double>();
  for (int64_t i = 0; i < variable.numel(); ++i) {
    const double before = values[i];
    values[i] = before + kStep;
    const double above = loss(function, t);
    values[i] = before - kStep;
    const double below = loss(function, t);
    values[i] = before;
    result.data_ptr<double>()[i] = (above - below) / (2.0 * kStep);
  }
  return result;
}

// The training forward for fixed r and d of sizes [groups, channels], for input [n, c, s].
at::Tensor frozen_forward(const Tensors& t, const ops::BatchRenormArguments& arguments, const at::Tensor& r,
                          const at::Tensor& d) {
  const int64_t groups = r.size(0);
  const int64_t size = t.input.size(0) / groups;
  const bool strided = arguments.grouping == Grouping::kStrided;
  const auto wide = [](const at::Tensor& tensor) { return tensor.unsqueeze(1).unsqueeze(3); };
  at::Tensor x = strided ? t.input.view({size, groups, t.input.size(1), -1}).transpose(0, 1)
                         : t.input.view({groups, size, t.input.size(1), -1});
  const at::Tensor mean = x.mean({1, 3}, true);
  const at::Tensor std = ((x - mean).square().mean({1, 3}, true) + arguments.eps).sqrt();
  at::Tensor y = (x - mean) / std * wide(r) + wide(d);
  y = y * t.weight.view({-1, 1}) + t.bias.view({-1, 1});
  if (arguments.activation == Activation::kRelu) y = y.relu();
  return (strided ? y.transpose(0, 1) : y).reshape(t.input.sizes());
}

Tensors make_leaves(const std::vector<int64_t>& sizes) {
  Case c;
  c.type = at::kDouble;
  c.sizes = sizes;
  return make_tensors(c);
}

void expect_gradients(const Function& op, const Function& function, const Tensors& t) {
  const Tensors leaves = converted(t, [](const at::Tensor& tensor) { return tensor.clone(); });
  leaves.input.requires_grad_();
  leaves.weight.requires_grad_();
  leaves.bias.requires_grad_();
  const at::Tensor output = op(leaves);
  EXPECT_LE(error_of(output, function(t)), tolerance(at::kDouble));
  output.backward(t.grad_output);
  EXPECT_LE(error_of(leaves.input.grad(), differences(function, t, t.input)), kDifferenceTolerance);
  EXPECT_LE(error_of(leaves.weight.grad(), differences(function, t, t.weight)), kDifferenceTolerance);
  EXPECT_LE(error_of(leaves.bias.grad(), differences(function, t, t.bias)), kDifferenceTolerance);
}

class Gradient : public Seeded {};

TEST_F(Gradient, OfTrainingWithRAndDHeldFixed) {
  for (const auto activation : {Activation::kNone, Activation::kRelu}) {
    for (const auto grouping : {Grouping::kContiguous, Grouping::kStrided}) {
      for (const auto& [r_max, d_max] : {std::pair(1.0, 0.0), std::pair(1.3, 0.2), std::pair(1e9, 1e9)}) {
        ops::BatchRenormArguments arguments{1e-3, r_max, d_max, 3, grouping, activation};
        Tensors t = make_leaves({6, 3, 4});
        const auto at_point = train(t, arguments);
        const auto function = [&](const Tensors& x) {
          return frozen_forward(x, arguments, at_point.r, at_point.d);
        };
        if (activation == Activation::kRelu) {
          ops::BatchRenormArguments linear = arguments;
          linear.activation = Activation::kNone;
          t.grad_output = t.grad_output * (train(t, linear).output.abs() > kKink);
        }
        SCOPED_TRACE(::testing::Message() << "r_max " << r_max << " d_max " << d_max);
        expect_gradients([&](const Tensors& x) { return train(x, arguments).output; }, function, t);
      }
    }
  }
}

// Averages so far from the batch that every r and d is at its limit: the operator's own forward holds them.
TEST_F(Gradient, OfTrainingAtTheLimitsIsThatOfItsForward) {
  const ops::BatchRenormArguments arguments{1e-5, 1.5, 0.7, 0, Grouping::kContiguous, Activation::kNone};
  for (const double running_std : {1e-2, 1e2}) {
    Tensors t = make_leaves({5, 2, 3});
    t.running_std.fill_(running_std);
    t.running_mean.fill_(1e4);
    const auto op = [&](const Tensors& x) { return train(x, arguments).output; };
    const auto at_point = train(t, arguments);
    ASSERT_TRUE(at_point.r.eq(running_std < 1.0 ? 1.5 : 1.0 / 1.5).all().item<bool>());
    ASSERT_TRUE(at_point.d.eq(-0.7).all().item<bool>());
    expect_gradients(op, op, t);
  }
}

TEST_F(Gradient, OfInference) {
  for (const auto activation : {Activation::kNone, Activation::kRelu}) {
    Tensors t = make_leaves({4, 3, 5});
    if (activation == Activation::kRelu) {
      t.grad_output = t.grad_output * (infer(t, Activation::kNone).abs() > kKink);
    }
    const auto op = [&](const Tensors& x) { return infer(x, activation); };
    expect_gradients(op, op, t);
  }
}

}  // namespace
}  // namespace renorm::test
