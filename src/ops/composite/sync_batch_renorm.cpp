// The operators for a divided group in ATen operations, for every device and floating dtype without a fused
// kernel.
#include "ops/sync_batch_renorm.h"

#include <torch/library.h>

#include "ops/arguments.h"

namespace renorm::ops {
namespace {

// A batch as [batch, channels, positions] in the dtype of the statistics. It is not empty.
at::Tensor wide(const at::Tensor& tensor, const at::Tensor& input) {
  return tensor.to(statistics_type(input.scalar_type())).reshape({input.size(0), input.size(1), -1});
}

// [channels] or [1, channels], broadcast over wide().
at::Tensor spread(const at::Tensor& tensor) { return tensor.reshape({1, -1, 1}); }

// Over all but the channels, in double.
at::Tensor total(const at::Tensor& values) { return values.sum(at::IntArrayRef{0, 2}, false, at::kDouble); }

struct Values {
  at::Tensor centred;  // x - mean
  at::Tensor output;   // before the activation
};

Values values_of(const ApplyArguments& a) {
  at::Tensor centred = wide(a.input, a.input) - spread(a.batch_mean);
  if (a.batch_mean_low.has_value()) centred = centred - spread(*a.batch_mean_low);
  at::Tensor output = centred / spread(a.batch_std);
  if (a.r.has_value()) output = output * spread(*a.r);
  if (a.d.has_value()) output = output + spread(*a.d);
  if (a.weight.has_value()) output = output * spread(*a.weight);
  if (a.bias.has_value()) output = output + spread(*a.bias);
  return {centred, output};
}

// grad_output after the backward pass of the activation.
at::Tensor passed(const at::Tensor& grad_output, const ApplyArguments& a, const Values& values) {
  const at::Tensor dy = wide(grad_output, a.input);
  return a.activation == Activation::kRelu ? dy.masked_fill(values.output.le(0), 0) : dy;
}

at::Tensor like_input(const at::Tensor& values, const at::Tensor& input) {
  return in_order_of(values.reshape(input.sizes()).to(input.scalar_type()), input);
}

}  // namespace

at::Tensor statistics_composite(const at::Tensor& input) {
  check_statistics_arguments(input);
  const int64_t channels = input.size(1);
  if (input.numel() == 0) return at::zeros({2 * channels + 1}, input.options().dtype(at::kDouble));
  const at::Tensor x = wide(input, input);
  const int64_t values = input.numel() / channels;
  const auto count = static_cast<double>(values);
  // The second pass removes the rounding error of the first mean.
  const at::Tensor rough_mean = (total(x) / count).to(x.scalar_type());
  const at::Tensor near = x - spread(rough_mean);
  const at::Tensor rest = total(near) / count;
  const at::Tensor m2 = (total(near.square()) - rest.square() * count).clamp_min(0.0);
  return at::cat({at::full({1}, count, rest.options()), rough_mean.to(at::kDouble) + rest, m2});
}

// The formula for any number of parts at once.
MergeTensors merge_composite(const MergeArguments& a) {
  check_merge(a);
  const int64_t channels = (a.statistics.size(1) - 1) / 2;
  const at::Tensor counts = a.statistics.narrow(1, 0, 1);
  const at::Tensor means = a.statistics.narrow(1, 1, channels);
  const at::Tensor count = counts.sum();
  const auto average = [&](const at::Tensor& values) { return (counts * values).sum(0) / count; };
  const at::Tensor rough_mean = average(means);
  const at::Tensor mean = rough_mean + average(means - rough_mean);
  const at::Tensor m2 =
      a.statistics.narrow(1, 1 + channels, channels).sum(0) + (counts * (means - mean).square()).sum(0);
  const auto as_statistic = [&](const at::Tensor& value) { return value.to(a.dtype).unsqueeze(0); };
  const at::Tensor batch_mean = as_statistic(mean);
  const at::Tensor low = as_statistic(mean - mean.to(a.dtype).to(at::kDouble));
  const at::Tensor std = as_statistic(m2 / count + a.eps).sqrt();
  if (!a.running_std.has_value()) {
    return {batch_mean, low, std, at::ones_like(std), at::zeros_like(std), count};
  }
  const Clipped limited =
      clipped(std / *a.running_std, (batch_mean - *a.running_mean) / *a.running_std, a.limits);
  return {batch_mean, low, std, limited.r, limited.d, count};
}

at::Tensor apply_composite(const ApplyArguments& a) {
  check_apply(a);
  if (a.input.numel() == 0) return at::empty_like(dense(a.input));
  const at::Tensor output = values_of(a).output;
  return like_input(a.activation == Activation::kRelu ? output.relu() : output, a.input);
}

at::Tensor backward_sums_composite(const SumsArguments& a) {
  check_backward_sums(a);
  const at::Tensor& input = a.forward.input;
  if (input.numel() == 0) return at::zeros({2, input.size(1)}, input.options().dtype(at::kDouble));
  const Values values = values_of(a.forward);
  const at::Tensor g = passed(a.grad_output, a.forward, values);
  return at::stack({total(g), total(g * values.centred)});
}

at::Tensor backward_apply_composite(const GradientArguments& a) {
  check_backward_apply(a);
  const ApplyArguments& f = a.forward;
  if (f.input.numel() == 0) return at::empty_like(dense(f.input));
  const Values values = values_of(f);
  const at::Tensor g = passed(a.grad_output, f, values);
  const at::Tensor std = f.batch_std.to(at::kDouble).reshape({-1});
  const auto spread_mean = [&](const at::Tensor& value) {
    return spread((value / a.count).to(g.scalar_type()));
  };
  const at::Tensor level = spread_mean(a.sums.select(0, 0));
  const at::Tensor slope = spread_mean(a.sums.select(0, 1) / std.square());
  at::Tensor scale = f.batch_std.reciprocal();
  if (f.r.has_value()) scale = scale * *f.r;
  if (f.weight.has_value()) scale = scale * *f.weight;
  return like_input((g - level - values.centred * slope) * spread(scale), f.input);
}

}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, CompositeExplicitAutograd, m) {
  m.impl("batch_renorm_statistics", TORCH_FN(renorm::ops::statistics_composite));
  m.impl("batch_renorm_merge", TORCH_FN(renorm::ops::flat_merge<renorm::ops::merge_composite>));
  m.impl("batch_renorm_apply", TORCH_FN(renorm::ops::flat_apply<renorm::ops::apply_composite>));
  m.impl("batch_renorm_backward_sums",
         TORCH_FN(renorm::ops::flat_backward_sums<renorm::ops::backward_sums_composite>));
  m.impl("batch_renorm_backward_apply",
         TORCH_FN(renorm::ops::flat_backward_apply<renorm::ops::backward_apply_composite>));
}
