// The operators in ATen operations, for every device and floating dtype without a fused kernel. Tests compare
// the fused kernels with them.
#include "ops/batch_renorm.h"

#include <renorm/ops/batch_renorm.h>
#include <torch/library.h>

#include "ops/arguments.h"

namespace renorm::ops {
namespace {

// Reshapes a batch to [groups, examples per group, channels, positions] in the statistics' dtype, and back.
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

// Broadcasts [groups, channels] or [channels] over [groups, size, channels, positions].
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

ForwardTensors batch_renorm_forward_composite(const at::Tensor& input, const OptionalTensor& weight,
                                              const OptionalTensor& bias, const OptionalTensor& running_mean,
                                              const OptionalTensor& running_std,
                                              const BatchRenormArguments& arguments) {
  BatchRenormResult result =
      batch_renorm_composite(input, value_or_undefined(weight), value_or_undefined(bias),
                             value_or_undefined(running_mean), value_or_undefined(running_std), arguments);
  return {result.output, result.batch_mean, result.batch_mean_low, result.batch_std, result.r, result.d};
}

BackwardTensors batch_renorm_backward_composite(const BackwardArguments& a) {
  check_batch_renorm_backward(a);
  const auto zeros = [&] { return at::zeros({a.input.size(1)}, a.batch_std.options()); };
  if (a.input.numel() == 0) {
    return {a.output_mask[0] ? a.input.clone() : at::Tensor(), a.output_mask[1] ? zeros() : at::Tensor(),
            a.output_mask[2] ? zeros() : at::Tensor()};
  }
  const Grouped grouped(a.input, a.group_size, a.grouping);
  at::Tensor centred = grouped.of(a.input) - spread(a.batch_mean);
  if (a.batch_mean_low.has_value()) centred = centred - spread(*a.batch_mean_low);
  at::Tensor x_hat = centred / spread(a.batch_std);
  if (a.r.has_value()) x_hat = x_hat * spread(*a.r);
  if (a.d.has_value()) x_hat = x_hat + spread(*a.d);
  at::Tensor dy = grouped.of(a.grad_output);
  if (a.activation == Activation::kRelu) {
    dy = dy * (affine(x_hat, value_or_undefined(a.weight), value_or_undefined(a.bias)) > 0);
  }
  at::Tensor dx;
  if (a.output_mask[0]) {
    const at::Tensor r_over_std = a.r.has_value() ? *a.r / a.batch_std : a.batch_std.reciprocal();
    at::Tensor g = a.weight.has_value() ? dy * spread(*a.weight) : dy;
    if (!a.frozen) {
      const at::Tensor along = (g * centred).mean(at::IntArrayRef{1, 3}) / a.batch_std.square();
      g = g - spread(g.mean(at::IntArrayRef{1, 3})) - centred * spread(along);
    }
    dx = grouped.back(g * spread(r_over_std));
  }
  return {dx, a.output_mask[1] ? (dy * x_hat).sum(at::IntArrayRef{0, 1, 3}) : at::Tensor(),
          a.output_mask[2] ? dy.sum(at::IntArrayRef{0, 1, 3}) : at::Tensor()};
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
  m.impl("batch_renorm", TORCH_FN(renorm::ops::flat_forward<renorm::ops::batch_renorm_forward_composite>));
  m.impl("batch_renorm_backward",
         TORCH_FN(renorm::ops::flat_backward<renorm::ops::batch_renorm_backward_composite>));
  m.impl("batch_renorm_inference", TORCH_FN(renorm::ops::batch_renorm_inference_composite));
}
