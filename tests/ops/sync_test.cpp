// The operators for a group that is divided among processes: the processes are parts of one batch here.
#include <renorm/ops/sync_batch_renorm.h>

#include <cmath>

#include "cases.h"
#include "support/effort.h"

namespace renorm::test {
namespace {

constexpr int64_t kCases = 250;
// Where the value before ReLU is this small, rounding may decide whether a gradient passes.
constexpr double kKink = 1e-3;

const ops::ClipRamp kWide{/*hold=*/-1, 3.0, 0, 5.0, 0};

// Restores the fused kernels when a test ends, whatever its result.
class Sync : public Seeded {
 protected:
  void TearDown() override { ops::force_composite(false); }
};

// One group without a residual.
Case draw_divided_case(Random& random) {
  Case c = draw_case(random);
  c.arguments.group_size = 0;
  c.arguments.r_max = kWide.r_max;
  c.arguments.d_max = kWide.d_max;
  c.has_residual = false;
  if (c.grad_memory == Memory::kExpandedFromOneValue || c.grad_memory == Memory::kExpanded) {
    c.grad_memory = Memory::kContiguous;  // its gradient cannot be 0 only at the kink
  }
  return c;
}

at::Tensor step_of(const Tensors& t) {
  return t.running_mean.defined() ? at::zeros({}, at::kLong) : at::Tensor();
}

struct Results {
  ops::GroupStatistics group;
  std::vector<at::Tensor> output, dinput;
  at::Tensor dweight, dbias;
};

// The parts of a batch through the operators, as as many processes would compute them.
Results run(const Tensors& t, const Case& c, const std::vector<int64_t>& shares) {
  const auto inputs = t.input.split_with_sizes(shares);
  const auto grads = t.grad_output.split_with_sizes(shares);
  std::vector<at::Tensor> rows;
  rows.reserve(inputs.size());
  for (const at::Tensor& input : inputs) rows.push_back(ops::batch_renorm_statistics(input));
  Results results;
  results.group = ops::batch_renorm_merge(at::stack(rows), t.running_mean, t.running_std, step_of(t), kWide,
                                          c.arguments.eps, statistics_of(c.type));
  const ops::GroupStatistics& group = results.group;
  const Activation activation = c.arguments.activation;
  at::Tensor sums = at::zeros({2, t.input.size(1)}, at::kDouble);
  for (size_t i = 0; i < inputs.size(); ++i) {
    results.output.push_back(ops::batch_renorm_apply(inputs[i], t.weight, t.bias, group, activation));
    sums += ops::batch_renorm_backward_sums(grads[i], inputs[i], t.weight, t.bias, group, activation);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    results.dinput.push_back(
        ops::batch_renorm_backward_apply(grads[i], inputs[i], t.weight, t.bias, group, sums, activation));
  }
  results.dweight = (group.r / group.batch_std * sums[1] + group.d * sums[0])[0];
  results.dbias = sums[0];
  return results;
}

// The whole batch in double by the composite, differentiated by the operator.
void expect_one_batch(const Tensors& t, const Case& c, const std::vector<int64_t>& shares) {
  const Tensors wide = converted(t, [](const at::Tensor& x) { return x.to(at::kDouble).contiguous(); });
  const auto expected = ops::batch_renorm_composite(wide.input, wide.weight, wide.bias, wide.running_mean,
                                                    wide.running_std, c.arguments);
  const auto gradients = backward(wide, expected, c.arguments);
  const Results actual = run(t, c, shares);
  const double narrow = tolerance(c.type);
  const double statistics = tolerance(statistics_of(c.type));
  const int64_t values = t.input.numel() / t.input.size(1);
  const double scale_of_sum = std::sqrt(static_cast<double>(values));
  EXPECT_EQ(actual.group.count.item<double>(), static_cast<double>(values));
  EXPECT_LE(error_of(actual.group.batch_mean, expected.batch_mean), statistics);
  EXPECT_LE(error_of(actual.group.batch_std, expected.batch_std), statistics);
  EXPECT_LE(error_of(actual.group.r, expected.r), statistics);
  EXPECT_LE(error_of(actual.group.d, expected.d), statistics);
  EXPECT_LE(error_of(at::cat(actual.output), expected.output), narrow);
  EXPECT_LE(error_of(at::cat(actual.dinput), gradients.input), narrow);
  EXPECT_LE(error_of(actual.dweight, gradients.weight, scale_of_sum), statistics);
  EXPECT_LE(error_of(actual.dbias, gradients.bias, scale_of_sum), statistics);
}

// Sets the gradient to 0 where the values before ReLU are near 0.
void avoid_kink(const Case& c, Tensors* t) {
  if (c.arguments.activation == Activation::kNone) return;
  ops::BatchRenormArguments linear = c.arguments;
  linear.activation = Activation::kNone;
  const at::Tensor far = train(*t, linear).output.abs() > kKink;
  t->grad_output = place(t->grad_output * far.to(t->grad_output.scalar_type()), c.grad_memory);
}

TEST_F(Sync, PartsOfABatchAreTheWholeBatch) {
  for (const bool composite : {false, true}) {
    ops::force_composite(composite);
    Random random(51);
    for (int64_t i = 0; i < case_count(kCases) && !HasFailure(); ++i) {
      const Case c = draw_divided_case(random);
      SCOPED_TRACE("case " + std::to_string(i) + (composite ? " composite: " : ": ") + describe(c));
      Tensors t = make_tensors(c);
      if (t.input.numel() / t.input.size(1) == 1) continue;
      avoid_kink(c, &t);
      const int64_t first = random.integer(0, c.sizes[0]);
      expect_one_batch(t, c, {first, 0, c.sizes[0] - first});
    }
  }
}

// The error of naive sums would be a million times the standard deviation.
TEST_F(Sync, MergesDataFarFromZero) {
  for (const bool composite : {false, true}) {
    ops::force_composite(composite);
    for (const auto type : {at::kFloat, at::kDouble}) {
      const at::Tensor x = (at::randn({64, 3, 5, 5}, at::kDouble) + 1e4).to(type);
      std::vector<at::Tensor> rows;
      for (const at::Tensor& part : x.split_with_sizes({10, 53, 1})) {
        rows.push_back(ops::batch_renorm_statistics(part));
      }
      const auto group = ops::batch_renorm_merge(at::stack(rows), {}, {}, {}, kWide, 1e-5, type);
      const at::Tensor wide = x.to(at::kDouble).transpose(0, 1).flatten(1);
      const at::Tensor mean = wide.mean(1);
      const at::Tensor std = ((wide - mean.unsqueeze(1)).square().mean(1) + 1e-5).sqrt();
      const at::Tensor sum = group.batch_mean.to(at::kDouble) + group.batch_mean_low.to(at::kDouble);
      // The mean in two parts has the precision of double at 1e4. A standard deviation is rounded to its
      // type.
      EXPECT_LE((sum[0] - mean).abs().max().item<double>(), 1e-7);
      EXPECT_LE(error_of(group.batch_std[0], std), type == at::kFloat ? 2.4e-7 : 1e-11);
    }
  }
}

TEST_F(Sync, AnEmptyPartHasZeros) {
  for (const bool composite : {false, true}) {
    ops::force_composite(composite);
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{0, 3}, {0, 3, 4, 4}, {2, 3, 0}}) {
      const at::Tensor empty = at::empty(sizes, at::kFloat);
      EXPECT_TRUE(at::equal(ops::batch_renorm_statistics(empty), at::zeros({7}, at::kDouble)));
      const at::Tensor other = ops::batch_renorm_statistics(at::randn({4, 3}));
      const auto group = ops::batch_renorm_merge(at::stack({ops::batch_renorm_statistics(empty), other}), {},
                                                 {}, {}, kWide, 1e-5, at::kFloat);
      EXPECT_EQ(ops::batch_renorm_apply(empty, {}, {}, group).sizes(), empty.sizes());
      const at::Tensor sums = ops::batch_renorm_backward_sums(empty, empty, {}, {}, group);
      EXPECT_TRUE(at::equal(sums, at::zeros({2, 3}, at::kDouble)));
      EXPECT_EQ(ops::batch_renorm_backward_apply(empty, empty, {}, {}, group, sums).sizes(), empty.sizes());
    }
    const at::Tensor nothing = at::zeros({2, 7}, at::kDouble);
    const auto none = ops::batch_renorm_merge(nothing, {}, {}, {}, kWide, 1e-5, at::kFloat);
    EXPECT_EQ(none.count.item<double>(), 0.0);
    EXPECT_TRUE(none.batch_mean.isnan().all().item<bool>());
    EXPECT_TRUE(none.batch_std.isnan().all().item<bool>());
  }
}

at::Tensor as_meta(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

void expect_same_kind(const at::Tensor& meta, const at::Tensor& real) {
  EXPECT_TRUE(meta.is_meta());
  EXPECT_EQ(meta.sizes(), real.sizes());
  EXPECT_EQ(meta.scalar_type(), real.scalar_type());
  EXPECT_TRUE(same_strides(meta, real)) << meta.strides() << ", real " << real.strides();
}

TEST_F(Sync, MetaTensorsAreThoseOfTheCpu) {
  Random random(52);
  for (int64_t i = 0; i < case_count(kCases) && !HasFailure(); ++i) {
    const Case c = draw_divided_case(random);
    SCOPED_TRACE("case " + std::to_string(i) + ": " + describe(c));
    const Tensors t = make_tensors(c);
    const Tensors m = converted(t, as_meta);
    const at::Tensor row = ops::batch_renorm_statistics(t.input);
    const at::Tensor meta_row = ops::batch_renorm_statistics(m.input);
    expect_same_kind(meta_row, row);
    const at::ScalarType type = statistics_of(c.type);
    const auto merged = [&](const Tensors& tensors, const at::Tensor& rows) {
      const at::Tensor step =
          tensors.running_mean.defined() ? at::zeros({}, rows.options().dtype(at::kLong)) : at::Tensor();
      return ops::batch_renorm_merge(rows.unsqueeze(0), tensors.running_mean, tensors.running_std, step,
                                     kWide, 1e-5, type);
    };
    const auto real = merged(t, row);
    const auto meta = merged(m, meta_row);
    expect_same_kind(meta.batch_mean, real.batch_mean);
    expect_same_kind(meta.batch_mean_low, real.batch_mean_low);
    expect_same_kind(meta.batch_std, real.batch_std);
    expect_same_kind(meta.r, real.r);
    expect_same_kind(meta.d, real.d);
    expect_same_kind(meta.count, real.count);
    expect_same_kind(ops::batch_renorm_apply(m.input, m.weight, m.bias, meta),
                     ops::batch_renorm_apply(t.input, t.weight, t.bias, real));
    const at::Tensor sums = ops::batch_renorm_backward_sums(t.grad_output, t.input, t.weight, t.bias, real);
    const at::Tensor meta_sums =
        ops::batch_renorm_backward_sums(m.grad_output, m.input, m.weight, m.bias, meta);
    expect_same_kind(meta_sums, sums);
    expect_same_kind(
        ops::batch_renorm_backward_apply(m.grad_output, m.input, m.weight, m.bias, meta, meta_sums),
        ops::batch_renorm_backward_apply(t.grad_output, t.input, t.weight, t.bias, real, sums));
  }
}

TEST_F(Sync, ATensorThatRequiresAGradientIsAnError) {
  const at::Tensor x = at::randn({4, 3}).requires_grad_();
  const std::string message = message_of([&] { ops::batch_renorm_statistics(x); });
  EXPECT_NE(message.find("renorm::batch_renorm_statistics: is not differentiable"), std::string::npos);
  const at::NoGradGuard no_grad;
  EXPECT_EQ(message_of([&] { ops::batch_renorm_statistics(x); }), "");
}

// Without this error tangents would silently be zero.
TEST_F(Sync, ATangentIsAnError) {
  const at::Tensor x = at::randn({4, 3});
  const at::Tensor rows = ops::batch_renorm_statistics(x).unsqueeze(0);
  const auto group = ops::batch_renorm_merge(rows, {}, {}, {}, kWide, 1e-5, at::kFloat);
  const at::Tensor sums = ops::batch_renorm_backward_sums(x, x, {}, {}, group);
  const at::Tensor ones = at::ones({3});
  const auto level = static_cast<int64_t>(torch::autograd::ForwardADLevel::get_next_idx());
  const auto dual = [&](const at::Tensor& tensor) {
    return at::_make_dual(tensor, at::ones_like(tensor), level);
  };
  ops::GroupStatistics dual_group = group;
  dual_group.batch_std = dual(group.batch_std);
  const std::vector<std::function<void()>> calls{
      [&] { ops::batch_renorm_statistics(dual(x)); },
      [&] { ops::batch_renorm_merge(dual(rows), {}, {}, {}, kWide, 1e-5, at::kFloat); },
      [&] {
        ops::batch_renorm_merge(rows, dual(ones), ones, at::zeros({}, at::kLong), kWide, 1e-5, at::kFloat);
      },
      [&] { ops::batch_renorm_apply(dual(x), {}, {}, group); },
      [&] { ops::batch_renorm_apply(x, dual(ones), {}, group); },
      [&] { ops::batch_renorm_apply(x, {}, {}, dual_group); },
      [&] { ops::batch_renorm_backward_sums(dual(x), x, {}, {}, group); },
      [&] { ops::batch_renorm_backward_apply(x, x, {}, {}, group, dual(sums)); }};
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string message = message_of(calls[i]);
    EXPECT_NE(message.find("forward-mode differentiation is not supported"), std::string::npos)
        << i << ": " << message;
  }
  torch::autograd::ForwardADLevel::release_idx(static_cast<uint64_t>(level));
}

TEST_F(Sync, WrongArgumentsAreErrorsOfOneSentence) {
  const at::Tensor x = at::randn({4, 3});
  const at::Tensor rows = ops::batch_renorm_statistics(x).unsqueeze(0);
  const auto group = ops::batch_renorm_merge(rows, {}, {}, {}, kWide, 1e-5, at::kFloat);
  const auto expect = [](const std::string& part, const std::function<void()>& call) {
    EXPECT_NE(message_of(call).find(part), std::string::npos) << message_of(call);
  };
  const at::Tensor ones = at::ones({3});
  const at::Tensor step = at::zeros({}, at::kLong);
  const auto merge = [&](const at::Tensor& statistics, const at::Tensor& mean, const at::Tensor& std,
                         double eps) {
    return [=] {
      ops::batch_renorm_merge(statistics, mean, std, mean.defined() ? step : at::Tensor(), kWide, eps,
                              at::kFloat);
    };
  };
  expect("input must be [batch, channels, ...]", [&] { ops::batch_renorm_statistics(at::randn({4})); });
  expect("statistics must be [processes, 2 * channels + 1]", merge(rows[0], {}, {}, 1e-5));
  expect("statistics must be [processes, 2 * channels + 1]", merge(rows.to(at::kFloat), {}, {}, 1e-5));
  expect("must be given together or not at all", merge(rows, ones, {}, 1e-5));
  expect("must be Float of 3 channels", merge(rows, at::ones({2}), at::ones({2}), 1e-5));
  expect("running_std must be finite and > 0, got 0 in channel 0", merge(rows, ones, ones * 0, 1e-5));
  expect("eps must be > 0", merge(rows, {}, {}, 0.0));
  expect("batch_mean must be [1, 2]", [&] { ops::batch_renorm_apply(at::randn({4, 2}), {}, {}, group); });
  expect("sums must be [2, 3] of type Double", [&] {
    ops::batch_renorm_backward_apply(x, x, {}, {}, group, at::zeros({2, 3}));
  });
  expect("grad_output must have the sizes of input", [&] {
    ops::batch_renorm_backward_sums(at::randn({3, 3}), x, {}, {}, group);
  });
}

}  // namespace
}  // namespace renorm::test
