// Empty inputs give results of the right sizes, gradients of 0 and no error.
#include "cases.h"

namespace renorm::test {
namespace {

std::vector<std::vector<int64_t>> empty_sizes() {
  return {{0, 3}, {0, 3, 4}, {0, 3, 2, 2}, {4, 3, 0}, {4, 3, 0, 2}, {4, 0}, {4, 0, 2, 2}, {0, 0, 0}};
}

const std::vector<at::ScalarType>& types() {
  static const std::vector<at::ScalarType> all{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  return all;
}

// All empty inputs, as leaves that require gradients.
template <class Check>
void for_each_empty(const Check& check) {
  for (const auto type : types()) {
    for (const auto& sizes : empty_sizes()) {
      Case c;
      c.type = type;
      c.sizes = sizes;
      SCOPED_TRACE(describe(c));
      Tensors t = make_tensors(c);
      t.input.requires_grad_();
      t.weight.requires_grad_();
      t.bias.requires_grad_();
      check(t);
    }
  }
}

void expect_zero_gradients(const Tensors& t) {
  ASSERT_TRUE(t.input.grad().defined());
  EXPECT_EQ(t.input.grad().sizes(), t.input.sizes());
  for (const at::Tensor& parameter : {t.weight, t.bias}) {
    ASSERT_TRUE(parameter.grad().defined());
    EXPECT_EQ(parameter.grad().sizes(), parameter.sizes());
    EXPECT_TRUE(at::equal(parameter.grad(), at::zeros_like(parameter)));
  }
}

class Empty : public Seeded {};

TEST_F(Empty, TrainingGivesNoGroups) {
  for_each_empty([](const Tensors& t) {
    for (const auto activation : {Activation::kNone, Activation::kRelu}) {
      ops::BatchRenormArguments arguments;
      arguments.activation = activation;
      const auto result = train(t, arguments);
      EXPECT_EQ(result.output.sizes(), t.input.sizes());
      EXPECT_EQ(result.output.scalar_type(), t.input.scalar_type());
      for (const at::Tensor& statistic : {result.batch_mean, result.batch_std, result.r, result.d}) {
        EXPECT_EQ(statistic.sizes(), (std::vector<int64_t>{0, t.input.size(1)}));
        EXPECT_EQ(statistic.scalar_type(), statistics_of(t.input.scalar_type()));
      }
    }
  });
}

TEST_F(Empty, TrainingGradientsAreZero) {
  for_each_empty([](const Tensors& t) {
    train(t, {}).output.backward(t.grad_output);
    expect_zero_gradients(t);
  });
}

TEST_F(Empty, GroupsOfAnySizeDivideIt) {
  for_each_empty([](const Tensors& t) {
    if (t.input.size(0) != 0) return;
    ops::BatchRenormArguments arguments;
    arguments.group_size = 4;
    arguments.grouping = Grouping::kStrided;
    train(t, arguments).output.backward(t.grad_output);
    expect_zero_gradients(t);
  });
}

TEST_F(Empty, InferenceGradientsAreZero) {
  for_each_empty([](const Tensors& t) {
    const at::Tensor output = infer(t, Activation::kRelu);
    EXPECT_EQ(output.sizes(), t.input.sizes());
    output.backward(t.grad_output);
    expect_zero_gradients(t);
  });
}

}  // namespace
}  // namespace renorm::test
