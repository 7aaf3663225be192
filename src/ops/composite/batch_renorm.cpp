// The operators in ATen operations, for every device and floating dtype without a fused kernel. Tests compare
// the fused kernels with them. Autograd and torch.func differentiate them, also while a compiler traces:
// sizes may be symbolic, and no value is read.
#include "ops/batch_renorm.h"

#include <renorm/ops/batch_renorm.h>
#include <torch/library.h>

#include <atomic>

#include "ops/arguments.h"

namespace renorm::ops {
namespace {

// A limit at `step`, as ClipRamp::at computes it.
at::Tensor limit_at(const at::Tensor& step, int64_t hold, double start, double end, int64_t last) {
  const auto constant = [&](double value) { return at::full_like(step, value); };
  const at::Tensor between = (step - hold) / static_cast<double>(last - hold) * (end - start) + start;
  return at::where(step.le(hold), constant(start), at::where(step.ge(last), constant(end), between));
}

}  // namespace

Clipped clipped(const at::Tensor& r, const at::Tensor& d, const ClipSource& limits) {
  const ClipRamp& clip = limits.clip;
  if (!limits.step.has_value() || clip.hold < 0) {
    return {r.clamp(1.0 / clip.r_max, clip.r_max), d.clamp(-clip.d_max, clip.d_max)};
  }
  const at::Tensor step = limits.step->to(r.scalar_type());
  const at::Tensor r_max = limit_at(step, clip.hold, 1.0, clip.r_max, clip.r_step);
  const at::Tensor d_max = limit_at(step, clip.hold, 0.0, clip.d_max, clip.d_step);
  return {at::clamp(r, r_max.reciprocal(), r_max), at::clamp(d, d_max.neg(), d_max)};
}

namespace {

// Reshapes a batch to [groups, examples per group, channels, positions] in the statistics' dtype, and back.
class Grouped {
 public:
  Grouped(const at::Tensor& like, int64_t group_size, Grouping grouping)
      : like_(like),
        strided_(grouping == Grouping::kStrided),
        groups_(sym_group_count(like, group_size)),
        size_(like.sym_size(0) / groups_) {}

  at::Tensor of(const at::Tensor& tensor) const {
    const at::Tensor wide = tensor.to(statistics_type(like_.scalar_type()));
    const c10::SymInt c = like_.sym_size(1);
    if (strided_) return wide.reshape_symint({size_, groups_, c, -1}).transpose(0, 1);
    return wide.reshape_symint({groups_, size_, c, -1});
  }
  at::Tensor back(const at::Tensor& grouped) const {
    const at::Tensor batch = (strided_ ? grouped.transpose(0, 1) : grouped).reshape_symint(like_.sym_sizes());
    return in_order_of(batch.to(like_.scalar_type()), like_);
  }

 private:
  at::Tensor like_;
  bool strided_;
  c10::SymInt groups_;
  c10::SymInt size_;
};

// Broadcasts [groups, channels] or [channels] over [groups, size, channels, positions].
at::Tensor spread(const at::Tensor& tensor) {
  return tensor.dim() == 1 ? tensor.view({1, 1, -1, 1}) : tensor.unsqueeze(1).unsqueeze(3);
}

at::Tensor affine(at::Tensor x_hat, const OptionalTensor& weight, const OptionalTensor& bias) {
  if (weight.has_value()) x_hat = x_hat * spread(*weight);
  if (bias.has_value()) x_hat = x_hat + spread(*bias);
  return x_hat;
}

at::Tensor activated(const at::Tensor& value, Activation activation) {
  return activation == Activation::kRelu ? value.relu() : value;
}

at::Tensor no_mask(const at::Tensor& input) { return at::empty({0}, input.options().dtype(at::kByte)); }

// The eight bits of a byte, as shifts.
at::Tensor shifts(const at::Tensor& like) { return at::arange(8, like.options().dtype(at::kByte)); }

// The mask of an output, in the order of contiguous memory.
at::Tensor mask_of(const at::Tensor& output) {
  const at::Tensor bits = output.detach().le(0).to(at::kByte).reshape({-1});
  const c10::SymInt missing = (c10::SymInt(8) - bits.sym_numel() % 8) % 8;
  const at::Tensor padded = at::cat({bits, at::zeros_symint({missing}, bits.options())}).view({-1, 8});
  const at::Tensor bytes =
      at::bitwise_left_shift(padded, shifts(output)).sum(at::IntArrayRef{1}, /*keepdim=*/false, at::kByte);
  return at::constant_pad_nd(bytes, {0, 8});
}

// Where a mask stops the gradient, in the sizes of input. Only the CPU has masks in another order than that
// of contiguous memory.
at::Tensor stopped(const at::Tensor& mask, const at::Tensor& input) {
  const at::Tensor bits = at::bitwise_right_shift(mask.unsqueeze(1), shifts(input)).bitwise_and(1);
  const at::Tensor flat = bits.reshape({-1}).slice_symint(0, 0, input.sym_numel()).to(at::kBool);
  const at::Tensor first = flat.reshape_symint(input.sym_sizes());
  if (!mask.is_cpu()) return first;
  const at::Tensor last = flat.reshape_symint(input.movedim(1, -1).sym_sizes()).movedim(-1, 1);
  return at::where(mask.select(0, -1).ne(0), last, first);
}

ForwardTensors empty_result(const at::Tensor& input) {
  const auto options = input.options().dtype(statistics_type(input.scalar_type()));
  const auto none = [&] { return at::empty_symint({0, input.sym_size(1)}, options); };
  return {input.clone(), none(), none(), none(), none(), none(), no_mask(input)};
}

// The statistics that the gradient uses, broadcast over the grouped input.
struct BackwardStatistics {
  at::Tensor centred;  // x - mean
  at::Tensor std;
};

BackwardStatistics saved_statistics(const BackwardArguments& a, const at::Tensor& x) {
  at::Tensor centred = x - spread(a.batch_mean);
  if (a.batch_mean_low.has_value()) centred = centred - spread(*a.batch_mean_low);
  return {centred, spread(a.batch_std)};
}

// The same as functions of x, for a second derivative. The difference between the saved variance and that of
// x is eps, a constant.
BackwardStatistics recomputed_statistics(const BackwardArguments& a, const at::Tensor& x) {
  // Centred twice: the first mean of data far from zero is rounded.
  const at::Tensor near = x - spread(x.mean(at::IntArrayRef{1, 3}));
  const at::Tensor centred = near - spread(near.mean(at::IntArrayRef{1, 3}));
  const at::Tensor variance = centred.square().mean(at::IntArrayRef{1, 3});
  const at::Tensor eps = (a.batch_std.square() - variance).detach();
  return {centred, spread((variance + eps).sqrt())};
}

BackwardTensors gradients(const BackwardArguments& a, const Grouped& grouped,
                          const BackwardStatistics& statistics) {
  const at::Tensor& centred = statistics.centred;
  at::Tensor x_hat = centred / statistics.std;
  if (a.r.has_value()) x_hat = x_hat * spread(*a.r);
  if (a.d.has_value()) x_hat = x_hat + spread(*a.d);
  at::Tensor dy = grouped.of(a.grad_output);
  if (a.activation == Activation::kRelu) {
    const bool has_mask = a.mask.has_value() && a.mask->sym_numel() != 0;
    dy = dy.masked_fill(has_mask ? grouped.of(stopped(*a.mask, a.input)).to(at::kBool)
                                 : affine(x_hat, a.weight, a.bias).le(0),
                        0);
  }
  at::Tensor dx;
  if (a.output_mask[0]) {
    at::Tensor g = a.weight.has_value() ? dy * spread(*a.weight) : dy;
    if (!a.frozen) {
      const at::Tensor along =
          (g * centred).mean(at::IntArrayRef{1, 3}, /*keepdim=*/true) / statistics.std.square();
      g = g - g.mean(at::IntArrayRef{1, 3}, /*keepdim=*/true) - centred * along;
    }
    g = g / statistics.std;
    dx = grouped.back(a.r.has_value() ? g * spread(*a.r) : g);
  }
  return {dx, a.output_mask[1] ? (dy * x_hat).sum(at::IntArrayRef{0, 1, 3}) : at::Tensor(),
          a.output_mask[2] ? dy.sum(at::IntArrayRef{0, 1, 3}) : at::Tensor(),
          a.output_mask[3] ? grouped.back(dy) : at::Tensor()};
}

BackwardTensors empty_gradients(const BackwardArguments& a) {
  const auto like_input = [&](bool wanted) { return wanted ? a.input.clone() : at::Tensor(); };
  const auto zeros = [&](bool wanted) {
    return wanted ? at::zeros_symint({a.input.sym_size(1)}, a.batch_std.options()) : at::Tensor();
  };
  return {like_input(a.output_mask[0]), zeros(a.output_mask[1]), zeros(a.output_mask[2]),
          like_input(a.output_mask[3])};
}

std::atomic<bool> forced{false};

}  // namespace

void force_composite(bool on) { forced = on; }

bool composite_is_forced() { return forced; }

ForwardTensors batch_renorm_forward_composite(const ForwardArguments& a) {
  check_batch_renorm(a);
  if (a.input.sym_numel() == 0) return empty_result(a.input);
  const Grouped grouped(a.input, a.group_size, a.grouping);
  const at::Tensor x = grouped.of(a.input);
  const at::Tensor batch_mean = x.mean(at::IntArrayRef{1, 3});
  const at::Tensor centred = x - spread(batch_mean);
  const at::Tensor batch_std = (centred.square().mean(at::IntArrayRef{1, 3}) + a.eps).sqrt();
  Clipped clip{at::ones_like(batch_std), at::zeros_like(batch_std)};
  if (a.running_std.has_value()) {
    clip = clipped((batch_std / *a.running_std).detach(),
                   ((batch_mean - *a.running_mean) / *a.running_std).detach(), a.limits);
  }
  at::Tensor output = affine(centred / spread(batch_std) * spread(clip.r) + spread(clip.d), a.weight, a.bias);
  if (a.residual.has_value()) output = output + grouped.of(*a.residual);
  output = grouped.back(activated(output, a.activation));
  return {output,
          batch_mean.detach(),
          at::zeros_like(clip.r),
          batch_std.detach(),
          clip.r,
          clip.d,
          has_mask(a) ? mask_of(output) : no_mask(a.input)};
}

BatchRenormResult batch_renorm_composite(const at::Tensor& input, const at::Tensor& weight,
                                         const at::Tensor& bias, const at::Tensor& running_mean,
                                         const at::Tensor& running_std, const BatchRenormArguments& a) {
  const ClipRamp constant{/*hold=*/-1, a.r_max, 0, a.d_max, 0};
  auto [output, batch_mean, batch_mean_low, batch_std, r, d, mask] = batch_renorm_forward_composite(
      {kForwardOp, input, optional(weight), optional(bias), optional(running_mean), optional(running_std),
       optional(a.residual), ClipSource{constant, {}}, a.eps, a.group_size, a.grouping, a.activation});
  return {output, batch_mean, batch_mean_low, batch_std, r, d, mask};
}

BackwardTensors batch_renorm_backward_composite(const BackwardArguments& a) {
  check_batch_renorm_backward(a);
  if (a.input.sym_numel() == 0) return empty_gradients(a);
  const Grouped grouped(a.input, a.group_size, a.grouping);
  return gradients(a, grouped, saved_statistics(a, grouped.of(a.input)));
}

BackwardTensors batch_renorm_backward_differentiable(const BackwardArguments& a) {
  check_batch_renorm_backward(a);
  if (a.input.sym_numel() == 0) return empty_gradients(a);
  const Grouped grouped(a.input, a.group_size, a.grouping);
  const at::Tensor x = grouped.of(a.input);
  return gradients(a, grouped, a.frozen ? saved_statistics(a, x) : recomputed_statistics(a, x));
}

at::Tensor batch_renorm_inference_composite(const InferenceArguments& a) {
  check_batch_renorm_inference(a);
  if (a.input.sym_numel() == 0) return a.input.clone();
  const Grouped grouped(a.input, 0, Grouping::kContiguous);
  const at::Tensor x_hat = (grouped.of(a.input) - spread(a.running_mean)) / spread(a.running_std);
  at::Tensor output = affine(x_hat, a.weight, a.bias);
  if (a.residual.has_value()) output = output + grouped.of(*a.residual);
  return grouped.back(activated(output, a.activation));
}

}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, CompositeExplicitAutograd, m) {
  m.impl("batch_renorm", TORCH_FN(renorm::ops::flat_forward<renorm::ops::batch_renorm_forward_composite>));
  m.impl("batch_renorm_step", TORCH_FN(renorm::ops::flat_step<renorm::ops::batch_renorm_forward_composite>));
  m.impl("batch_renorm_backward",
         TORCH_FN(renorm::ops::flat_backward<renorm::ops::batch_renorm_backward_composite>));
  m.impl("batch_renorm_inference",
         TORCH_FN(renorm::ops::flat_inference<renorm::ops::batch_renorm_inference_composite>));
}
