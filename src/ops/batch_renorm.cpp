// Schemas, and the public functions that call them through the dispatcher.
#include "ops/batch_renorm.h"

#include <ATen/Dispatch.h>
#include <renorm/ops/batch_renorm.h>
#include <torch/library.h>

#include "kernels/averages.h"
#include "ops/arguments.h"
#include "ops/schema.h"

#define RENORM_FORWARD_RESULTS                                                                       \
  "(Tensor output, Tensor batch_mean, Tensor batch_mean_low, Tensor batch_std, Tensor r, Tensor d, " \
  "Tensor mask)"

TORCH_LIBRARY(renorm, m) {
  m.def(
      "batch_renorm(Tensor input, Tensor? weight=None, Tensor? bias=None, Tensor? running_mean=None, "
      "Tensor? running_std=None, float eps=1e-05, float r_max=1.0, float d_max=0.0, int group_size=0, "
      "str grouping=\"contiguous\", str activation=\"none\", Tensor? residual=None) "
      "-> " RENORM_FORWARD_RESULTS RENORM_TAGS);
  m.def(
      "batch_renorm_step(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, "
      "Tensor running_std, Tensor step, int hold, float r_max, int r_step, float d_max, int d_step, "
      "float eps=1e-05, int group_size=0, str grouping=\"contiguous\", str activation=\"none\", "
      "Tensor? residual=None) -> " RENORM_FORWARD_RESULTS RENORM_TAGS);
  m.def(
      "batch_renorm_backward(Tensor grad_output, Tensor input, Tensor? weight, Tensor? bias, "
      "Tensor? mask, Tensor batch_mean, Tensor? batch_mean_low, Tensor batch_std, Tensor? r, Tensor? d, "
      "int group_size, str grouping, str activation, bool frozen, bool[4] output_mask) "
      "-> (Tensor, Tensor, Tensor, Tensor)" RENORM_TAGS);
  m.def(
      "batch_renorm_inference(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, "
      "Tensor running_std, str activation=\"none\", Tensor? residual=None) -> Tensor" RENORM_TAGS);
  m.def(
      "move_averages_(Tensor(a!) running_mean, Tensor(b!) running_std, Tensor(c!) step, Tensor batch_mean, "
      "Tensor batch_std, float? momentum) -> ()" RENORM_TAGS);
  m.def(
      "batch_renorm_train_(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, "
      "Tensor(b!) running_std, Tensor(c!) step, Tensor(d!) counts, float? momentum, int hold, float r_max, "
      "int r_step, float d_max, int d_step, float eps=1e-05, int group_size=0, str grouping=\"contiguous\", "
      "str activation=\"none\", Tensor? residual=None, bool record=False) "
      "-> (Tensor output, Tensor record)" RENORM_TAGS);
  m.def(
      "count_clips_(Tensor(a!) counts, Tensor batch_mean, Tensor batch_std, Tensor running_mean, "
      "Tensor running_std, Tensor step, int hold, float r_max, int r_step, float d_max, int d_step) "
      "-> ()" RENORM_TAGS);
}

namespace renorm::ops {
namespace {

BatchRenormResult result_of(ForwardTensors&& tensors) {
  auto [output, batch_mean, batch_mean_low, batch_std, r, d, mask] = std::move(tensors);
  return {std::move(output),    std::move(batch_mean), std::move(batch_mean_low),
          std::move(batch_std), std::move(r),          std::move(d),
          std::move(mask)};
}

// 4 * channels + 1 doubles of a forward: running_mean, running_std, the sums over the groups of batch_mean
// and of batch_std, and the step.
at::Tensor record_of(const at::Tensor& running_mean, const at::Tensor& running_std, const at::Tensor& step,
                     const at::Tensor& batch_mean, const at::Tensor& batch_std) {
  const int64_t channels = running_mean.numel();
  const at::Tensor record = at::zeros({4 * channels + 1}, at::kDouble);
  double* row = record.data_ptr<double>();
  AT_DISPATCH_FLOATING_TYPES(running_mean.scalar_type(), kTrainOp, [&] {
    for (const at::Tensor* tensor : {&running_mean, &running_std, &batch_mean, &batch_std}) {
      const at::Tensor rows = tensor->contiguous();
      kernels::add_groups(rows.data_ptr<scalar_t>(), rows.numel() / channels, channels, row);
      row += channels;
    }
  });
  *row = static_cast<double>(*step.data_ptr<int64_t>());
  return record;
}

// batch_renorm_step, count_clips_ and move_averages_ in one call. From Python a call costs as much as the
// arithmetic of a small layer.
std::tuple<at::Tensor, at::Tensor> batch_renorm_train_(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    at::Tensor running_mean, at::Tensor running_std, at::Tensor step, at::Tensor counts,
    Optional<double> momentum, int64_t hold, double r_max, int64_t r_step, double d_max, int64_t d_step,
    double eps, int64_t group_size, c10::string_view grouping, c10::string_view activation,
    const OptionalTensor& residual, bool record) {
  TORCH_CHECK(!record || is_readable(input), kTrainOp,
              ": record requires tensors on the CPU, outside of torch.compile and torch.func, got ",
              input.is_cpu() ? "tensors without data" : input.device().str());
  auto result =
      flat_step<call_batch_renorm>(input, weight, bias, running_mean, running_std, step, hold, r_max, r_step,
                                   d_max, d_step, eps, group_size, grouping, activation, residual);
  const at::Tensor& batch_mean = std::get<1>(result);
  const at::Tensor& batch_std = std::get<3>(result);
  at::Tensor recorded = record ? record_of(running_mean, running_std, step, batch_mean, batch_std)
                               : at::empty({0}, at::TensorOptions(input.device()).dtype(at::kDouble));
  using CountClips = void(at::Tensor, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, const at::Tensor&, int64_t, double, int64_t, double, int64_t);
  static const auto count_clips = typed<CountClips>(kCountOp);
  count_clips.call(std::move(counts), batch_mean, batch_std, running_mean, running_std, step, hold, r_max,
                   r_step, d_max, d_step);
  move_averages_(std::move(running_mean), std::move(running_std), std::move(step), batch_mean, batch_std,
                 momentum);
  return {std::move(std::get<0>(result)), std::move(recorded)};
}

}  // namespace

ForwardTensors call_batch_renorm(const ForwardArguments& a) {
  const ClipRamp& clip = a.limits.clip;
  if (a.limits.step.has_value()) {
    static const auto op = typed<decltype(flat_step<call_batch_renorm>)>(kStepOp);
    return op.call(a.input, a.weight, a.bias, value_or_undefined(a.running_mean),
                   value_or_undefined(a.running_std), *a.limits.step, clip.hold, clip.r_max, clip.r_step,
                   clip.d_max, clip.d_step, a.eps, a.group_size, name_of(a.grouping), name_of(a.activation),
                   a.residual);
  }
  static const auto op = typed<decltype(flat_forward<call_batch_renorm>)>(kForwardOp);
  return op.call(a.input, a.weight, a.bias, a.running_mean, a.running_std, a.eps, clip.r_max, clip.d_max,
                 a.group_size, name_of(a.grouping), name_of(a.activation), a.residual);
}

BackwardTensors call_batch_renorm_backward(const BackwardArguments& a) {
  static const auto op = typed<decltype(flat_backward<call_batch_renorm_backward>)>(kBackwardOp);
  return op.call(a.grad_output, a.input, a.weight, a.bias, a.mask, a.batch_mean, a.batch_mean_low,
                 a.batch_std, a.r, a.d, a.group_size, name_of(a.grouping), name_of(a.activation), a.frozen,
                 a.output_mask);
}

at::Tensor call_batch_renorm_inference(const InferenceArguments& a) {
  static const auto op = typed<decltype(flat_inference<call_batch_renorm_inference>)>(kInferenceOp);
  return op.call(a.input, a.weight, a.bias, a.running_mean, a.running_std, name_of(a.activation), a.residual);
}

BatchRenormResult batch_renorm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                               const at::Tensor& running_mean, const at::Tensor& running_std,
                               const BatchRenormArguments& a) {
  const ClipRamp constant{/*hold=*/-1, a.r_max, 0, a.d_max, 0};
  return result_of(call_batch_renorm(
      {kForwardOp, input, optional(weight), optional(bias), optional(running_mean), optional(running_std),
       optional(a.residual), ClipSource{constant, {}}, a.eps, a.group_size, a.grouping, a.activation}));
}

BatchRenormResult batch_renorm_step(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                    const at::Tensor& running_mean, const at::Tensor& running_std,
                                    const at::Tensor& step, const ClipRamp& clip,
                                    const BatchRenormArguments& a) {
  return result_of(call_batch_renorm(
      {kStepOp, input, optional(weight), optional(bias), optional(running_mean), optional(running_std),
       optional(a.residual), ClipSource{clip, step}, a.eps, a.group_size, a.grouping, a.activation}));
}

BatchRenormGradients batch_renorm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                           const at::Tensor& weight, const at::Tensor& bias,
                                           const BatchRenormResult& forward, const BatchRenormArguments& a,
                                           std::array<bool, 4> output_mask) {
  output_mask[3] = output_mask[3] && a.residual.defined();
  TORCH_CHECK(!a.residual.defined() || a.activation == Activation::kNone || input.sym_numel() == 0 ||
                  (forward.mask.defined() && forward.mask.sym_numel() != 0),
              kBackwardOp, ": a residual with ReLU needs the mask of the forward, got none");
  auto [dinput, dweight, dbias, dresidual] = call_batch_renorm_backward(
      {grad_output, input, optional(weight), optional(bias), optional(forward.mask), forward.batch_mean,
       optional(forward.batch_mean_low), forward.batch_std, optional(forward.r), optional(forward.d),
       a.group_size, a.grouping, a.activation, /*frozen=*/false, output_mask});
  return {std::move(dinput), std::move(dweight), std::move(dbias), std::move(dresidual)};
}

at::Tensor batch_renorm_inference(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                  const at::Tensor& running_mean, const at::Tensor& running_std,
                                  Activation activation, const at::Tensor& residual) {
  return call_batch_renorm_inference(
      {input, optional(weight), optional(bias), running_mean, running_std, activation, optional(residual)});
}

void move_averages_(at::Tensor running_mean, at::Tensor running_std, at::Tensor step,
                    const at::Tensor& batch_mean, const at::Tensor& batch_std, Optional<double> momentum) {
  using Move =
      void(at::Tensor, at::Tensor, at::Tensor, const at::Tensor&, const at::Tensor&, Optional<double>);
  static const auto op = typed<Move>(kMoveOp);
  op.call(std::move(running_mean), std::move(running_std), std::move(step), batch_mean, batch_std, momentum);
}

}  // namespace renorm::ops

// It decomposes into operators that autograd knows.
TORCH_LIBRARY_IMPL(renorm, CompositeImplicitAutograd, m) {
  m.impl("batch_renorm_train_", TORCH_FN(renorm::ops::batch_renorm_train_));
}
