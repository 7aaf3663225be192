// Meta tensors have no data. Their results must have the sizes, dtypes and strides of those on the CPU.
#include "cases.h"

namespace renorm::test {
namespace {

constexpr int64_t kCases = 300;

at::Tensor as_meta(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

void expect_same_kind(const at::Tensor& meta, const at::Tensor& real, const char* name) {
  ASSERT_TRUE(meta.defined()) << name;
  EXPECT_TRUE(meta.is_meta()) << name;
  EXPECT_EQ(meta.sizes(), real.sizes()) << name;
  EXPECT_EQ(meta.scalar_type(), real.scalar_type()) << name;
  EXPECT_TRUE(same_strides(meta, real)) << name << ": " << meta.strides() << ", real " << real.strides();
}

void expect_same_results(const Tensors& t, const Case& c) {
  const Tensors m = converted(t, as_meta);
  const auto real = train(t, c.arguments);
  const auto meta = train(m, c.arguments);
  expect_same_kind(meta.output, real.output, "output");
  expect_same_kind(meta.batch_mean, real.batch_mean, "batch_mean");
  expect_same_kind(meta.batch_mean_low, real.batch_mean_low, "batch_mean_low");
  expect_same_kind(meta.batch_std, real.batch_std, "batch_std");
  expect_same_kind(meta.r, real.r, "r");
  expect_same_kind(meta.d, real.d, "d");
  expect_same_kind(meta.mask, real.mask, "mask");
  const auto real_grads = backward(t, real, c.arguments);
  const auto meta_grads = backward(m, meta, c.arguments);
  expect_same_kind(meta_grads.input, real_grads.input, "gradient of input");
  expect_same_kind(meta_grads.weight, real_grads.weight, "gradient of weight");
  expect_same_kind(meta_grads.bias, real_grads.bias, "gradient of bias");
  if (c.has_residual) expect_same_kind(meta_grads.residual, real_grads.residual, "gradient of residual");
  if (!c.has_averages) return;
  expect_same_kind(infer(m, c.arguments.activation), infer(t, c.arguments.activation), "inference");
}

class Meta : public Seeded {};

TEST_F(Meta, SizesTypesAndStridesAreThoseOfTheCpu) {
  Random random(3);
  for (int64_t i = 0; i < kCases && !HasFailure(); ++i) {
    const Case c = draw_case(random);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + describe(c));
    expect_same_results(make_tensors(c), c);
  }
}

TEST_F(Meta, EmptyTensorsAreThoseOfTheCpu) {
  for (const auto type : {at::kFloat, at::kHalf}) {
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{0, 3}, {0, 3, 4, 4}, {2, 3, 0}, {2, 0, 4}}) {
      Case c;
      c.type = type;
      c.sizes = sizes;
      c.has_residual = true;
      c.arguments.activation = Activation::kRelu;
      SCOPED_TRACE(describe(c));
      expect_same_results(make_tensors(c), c);
    }
  }
}

TEST_F(Meta, BackwardOmitsGradientsThatAreMaskedOut) {
  Case c;
  c.sizes = {4, 3, 5};
  const Tensors m = converted(make_tensors(c), as_meta);
  const auto forward = train(m, c.arguments);
  const auto grads = ops::batch_renorm_backward(m.grad_output, m.input, m.weight, m.bias, forward,
                                                c.arguments, {false, true, false, false});
  EXPECT_FALSE(grads.input.defined());
  EXPECT_TRUE(grads.weight.defined());
  EXPECT_FALSE(grads.bias.defined());
  EXPECT_FALSE(grads.residual.defined());
}

// 4 TB of values: no machine could read or write them.
TEST_F(Meta, TouchesNoData) {
  const auto options = at::TensorOptions(at::kFloat).device(at::kMeta);
  const at::Tensor input = at::empty({1 << 20, 1024, 32, 32}, options);
  EXPECT_EQ(ops::batch_renorm(input, {}, {}, {}, {}, {}).output.sizes(), input.sizes());
}

}  // namespace
}  // namespace renorm::test
