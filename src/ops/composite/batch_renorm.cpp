// The operators from plain ATen operations: every device and floating dtype without a fused kernel, and the
// cross-check of those with one.
#include <renorm/ops/batch_renorm.h>
#include <torch/library.h>

#include "ops/checks.h"
#include "ops/layout.h"
#include "ops/schema.h"

namespace renorm::ops {
namespace {

// A batch seen as [groups, examples of a group, channels, positions], in the statistics' dtype, and the way
// back.
class Grouped {
 public:
  Grouped(const at::Tensor& like, int64_t group_size, Grouping grouping)
      : like_(like),
        strided_(grouping == Grouping::kStrided),
        groups_(group_count(like, group_size)),
        size_(like.size(0) / groups_) {}

  at::Tensor of(const at::Tensor& tensor) const {
    const at::Tensor wide = tensor.to(statistics_type(like_.scalar_type()));
    const int64_t c = like_.size(1);
    if (strided_) return wide.reshape({size_, groups_, c, -1}).transpose(0, 1);
    return wide.reshape({groups_, size_, c, -1});
  }
  at::Tensor back(const at::Tensor& grouped) const {
    const at::Tensor batch = (strided_ ? grouped.transpose(0, 1) : grouped).reshape(like_.sizes());
    return in_order_of(batch.to(like_.scalar_type()), like_);
  }

 private:
  at::Tensor like_;
  bool strided_;
  int64_t groups_;
  int64_t size_;
};

// [groups, channels] or [channels] against [groups, size, channels, positions].
at::Tensor spread(const at::Tensor& tensor) {
  return tensor.dim() == 1 ? tensor.view({1, 1, -1, 1}) : tensor.unsqueeze(1).unsqueeze(3);
}

at::Tensor affine(at::Tensor x_hat, const at::Tensor& weight, const at::Tensor& bias) {
  if (weight.defined()) x_hat = x_hat * spread(weight);
  if (bias.defined()) x_hat = x_hat + spread(bias);
  return x_hat;
}

BatchRenormResult empty_result(const at::Tensor& input) {
  const auto options = input.options().dtype(statistics_type(input.scalar_type()));
  const auto none = [&] { return at::empty({0, input.size(1)}, options); };
  return {input.clone(), none(), none(), none(), none(), none()};
}

ForwardTensors batch_renorm_any(const at::Tensor& input, const OptionalTensor& weight,
                                const OptionalTensor& bias, const OptionalTensor& running_mean,
                                const OptionalTensor& running_std, double eps, double r_max, double d_max,
                                int64_t group_size, int64_t grouping, int64_t activation) {
  BatchRenormResult result = batch_renorm_composite(
      input, value_or_undefined(weight), value_or_undefined(bias), value_or_undefined(running_mean),
      value_or_undefined(running_std), arguments_of(eps, r_max, d_max, group_size, grouping, activation));
  return {result.output, result.batch_mean, result.batch_mean_low, result.batch_std, result.r, result.d};
}

}  // namespace

BatchRenormResult batch_renorm_composite(const at::Tensor& input, const at::Tensor& weight,
                                         const at::Tensor& bias, const at::Tensor& running_mean,
                                         const at::Tensor& running_std,
                                         const BatchRenormArguments& arguments) {
  check_batch_renorm(input, optional(weight), optional(bias), optional(running_mean), optional(running_std),
                     arguments);
  if (input.numel() == 0) return empty_result(input);
  const Grouped grouped(input, arguments.group_size, arguments.grouping);
  const at::Tensor x = grouped.of(input);
  const at::Tensor batch_mean = x.mean(at::IntArrayRef{1, 3});
  const at::Tensor centred = x - spread(batch_mean);
  const at::Tensor batch_std = (centred.square().mean(at::IntArrayRef{1, 3}) + arguments.eps).sqrt();
  at::Tensor r = at::ones_like(batch_std);
  at::Tensor d = at::zeros_like(batch_std);
  if (running_std.defined()) {
    r = (batch_std / running_std).detach().clamp(1.0 / arguments.r_max, arguments.r_max);
    d = ((batch_mean - running_mean) / running_std).detach().clamp(-arguments.d_max, arguments.d_max);
  }
  at::Tensor output = affine(centred / spread(batch_std) * spread(r) + spread(d), weight, bias);
  if (arguments.activation == Activation::kRelu) output = output.relu();
  return {grouped.back(output), batch_mean.detach(), at::zeros_like(r), batch_std.detach(), r, d};
}

BackwardTensors batch_renorm_backward_composite(
    const at::Tensor& grad_output, const at::Tensor& input, const OptionalTensor& weight,
    const OptionalTensor& bias, const at::Tensor& batch_mean, const OptionalTensor& batch_mean_low,
    const at::Tensor& batch_std, const OptionalTensor& r, const OptionalTensor& d, int64_t group_size,
    int64_t grouping, int64_t activation, bool frozen, std::array<bool, 3> output_mask) {
  const BatchRenormArguments arguments = arguments_of(1.0, 1.0, 0.0, group_size, grouping, activation);
  check_batch_renorm_backward(grad_output, input, weight, bias, batch_mean, batch_mean_low, batch_std, r, d,
                              arguments);
  const auto channels = [&] { return at::zeros({input.size(1)}, batch_std.options()); };
  if (input.numel() == 0) {
    return {output_mask[0] ? input.clone() : at::Tensor(), output_mask[1] ? channels() : at::Tensor(),
            output_mask[2] ? channels() : at::Tensor()};
  }
  const Grouped grouped(input, group_size, arguments.grouping);
  at::Tensor centred = grouped.of(input) - spread(batch_mean);
  if (batch_mean_low.has_value()) centred = centred - spread(*batch_mean_low);
  at::Tensor x_hat = centred / spread(batch_std);
  if (r.has_value()) x_hat = x_hat * spread(*r);
  if (d.has_value()) x_hat = x_hat + spread(*d);
  at::Tensor dy = grouped.of(grad_output);
  if (arguments.activation == Activation::kRelu) {
    dy = dy * (affine(x_hat, value_or_undefined(weight), value_or_undefined(bias)) > 0);
  }
  at::Tensor dx;
  if (output_mask[0]) {
    at::Tensor slope = r.has_value() ? *r / batch_std : batch_std.reciprocal();
    at::Tensor g = weight.has_value() ? dy * spread(*weight) : dy;
    if (!frozen) {
      const at::Tensor along = (g * centred).mean(at::IntArrayRef{1, 3}) / batch_std.square();
      g = g - spread(g.mean(at::IntArrayRef{1, 3})) - centred * spread(along);
    }
    dx = grouped.back(g * spread(slope));
  }
  return {dx, output_mask[1] ? (dy * x_hat).sum(at::IntArrayRef{0, 1, 3}) : at::Tensor(),
          output_mask[2] ? dy.sum(at::IntArrayRef{0, 1, 3}) : at::Tensor()};
}

at::Tensor batch_renorm_inference_composite(const at::Tensor& input, const OptionalTensor& weight,
                                            const OptionalTensor& bias, const at::Tensor& running_mean,
                                            const at::Tensor& running_std, int64_t activation) {
  check_batch_renorm_inference(input, weight, bias, running_mean, running_std, activation);
  if (input.numel() == 0) return input.clone();
  const Grouped grouped(input, 0, Grouping::kContiguous);
  const at::Tensor x_hat = (grouped.of(input) - spread(running_mean)) / spread(running_std);
  const at::Tensor output = affine(x_hat, value_or_undefined(weight), value_or_undefined(bias));
  return grouped.back(activation == static_cast<int64_t>(Activation::kRelu) ? output.relu() : output);
}

}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, CompositeExplicitAutograd, m) {
  m.impl("batch_renorm", TORCH_FN(renorm::ops::batch_renorm_any));
  m.impl("batch_renorm_backward", TORCH_FN(renorm::ops::batch_renorm_backward_composite));
  m.impl("batch_renorm_inference", TORCH_FN(renorm::ops::batch_renorm_inference_composite));
}
