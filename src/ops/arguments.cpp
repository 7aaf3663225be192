#include "ops/arguments.h"

#include <ATen/Dispatch.h>
#include <ATen/functorch/TensorWrapper.h>

#include "kernels/averages.h"

namespace renorm::ops {

at::ScalarType statistics_type(at::ScalarType input) {
  return input == at::kDouble ? at::kDouble : at::kFloat;
}

namespace {

void check_input(const char* op, const at::Tensor& input) {
  TORCH_CHECK(input.defined(), op, ": input must be a tensor, got none");
  TORCH_CHECK(at::isFloatingType(input.scalar_type()), op, ": input must have a floating dtype, got ",
              input.scalar_type());
  TORCH_CHECK(input.dim() >= 2, op, ": input must be [batch, channels, ...], got ", input.dim(),
              " dimension(s) of sizes ", input.sym_sizes());
}

void check_device(const char* op, const char* name, const at::Tensor& tensor, const at::Tensor& input) {
  TORCH_CHECK(tensor.device() == input.device(), op, ": ", name, " must be on the device of input, ",
              input.device(), ", got ", tensor.device());
}

void check_type(const char* op, const char* name, const at::Tensor& tensor, const at::Tensor& input) {
  const at::ScalarType expected = statistics_type(input.scalar_type());
  TORCH_CHECK(tensor.scalar_type() == expected, op, ": ", name, " must be ", expected, " for input of type ",
              input.scalar_type(), ", got ", tensor.scalar_type());
}

void check_per_channel(const char* op, const char* name, const OptionalTensor& optional,
                       const at::Tensor& input) {
  if (!optional.has_value() || !optional->defined()) return;
  const at::Tensor& tensor = *optional;
  TORCH_CHECK(tensor.dim() == 1 && tensor.sym_size(0) == input.sym_size(1), op, ": ", name,
              " must have one value for each of the ", input.sym_size(1), " channels of input, got sizes ",
              tensor.sym_sizes());
  check_device(op, name, tensor, input);
  check_type(op, name, tensor, input);
}

// A tensor of the input's sizes.
void check_like_input(const char* op, const char* name, const OptionalTensor& optional,
                      const at::Tensor& input) {
  if (!optional.has_value() || !optional->defined()) return;
  TORCH_CHECK(optional->sym_sizes() == input.sym_sizes(), op, ": ", name, " must have the sizes of input, ",
              input.sym_sizes(), ", got ", optional->sym_sizes());
  check_device(op, name, *optional, input);
}

void check_residual(const char* op, const OptionalTensor& residual, const at::Tensor& input) {
  check_like_input(op, "residual", residual, input);
  if (!residual.has_value() || !residual->defined()) return;
  TORCH_CHECK(residual->scalar_type() == input.scalar_type(), op, ": residual must have the dtype of input, ",
              input.scalar_type(), ", got ", residual->scalar_type());
}

void check_mask(const char* op, const BackwardArguments& a) {
  if (!a.mask.has_value() || !a.mask->defined() || a.mask->sym_numel() == 0) {
    TORCH_CHECK(a.activation == Activation::kNone || !a.output_mask[3] || a.input.sym_numel() == 0, op,
                ": the gradient of a residual with ReLU needs the mask of the forward, got none");
    return;
  }
  const at::Tensor& mask = *a.mask;
  const c10::SymInt bytes = sym_mask_size(a.input.sym_numel());
  TORCH_CHECK(mask.scalar_type() == at::kByte && mask.dim() == 1 && mask.sym_size(0) == bytes, op,
              ": mask must be that of the forward, which has ", bytes, " bytes, got ", mask.scalar_type(),
              " of sizes ", mask.sym_sizes());
  check_device(op, "mask", mask, a.input);
}

void check_eps(const char* op, double eps, const at::Tensor& input) {
  TORCH_CHECK(eps > 0.0, op, ": eps must be > 0, got ", eps);
  const at::ScalarType type = statistics_type(input.scalar_type());
  TORCH_CHECK(type == at::kDouble || static_cast<float>(eps) > 0.0F, op, ": eps must be > 0 as a ", type,
              ", got ", eps);
}

void check_clip(const char* op, const ClipSource& limits, const at::Tensor& input) {
  const ClipRamp& clip = limits.clip;
  TORCH_CHECK(clip.r_max >= 1.0, op, ": r_max must be >= 1, got ", clip.r_max);
  TORCH_CHECK(clip.d_max >= 0.0, op, ": d_max must be >= 0, got ", clip.d_max);
  if (!limits.step.has_value()) return;
  TORCH_CHECK(clip.hold < 0 || clip.r_step >= clip.hold, op, ": r_step must be >= hold, ", clip.hold,
              ", got ", clip.r_step);
  TORCH_CHECK(clip.hold < 0 || clip.d_step >= clip.hold, op, ": d_step must be >= hold, ", clip.hold,
              ", got ", clip.d_step);
  const at::Tensor& step = *limits.step;
  TORCH_CHECK(step.scalar_type() == at::kLong && step.dim() == 0, op,
              ": step must be one int64 without dimensions, got ", step.scalar_type(), " of sizes ",
              step.sym_sizes());
  check_device(op, "step", step, input);
}

void check_groups(const char* op, int64_t group_size, const at::Tensor& input) {
  TORCH_CHECK(group_size >= 0, op, ": group_size must be >= 0 (0 = the whole batch), got ", group_size);
  TORCH_CHECK(group_size == 0 || input.sym_size(0) % group_size == 0, op,
              ": group_size must divide the batch of ", input.sym_size(0), " examples, got ", group_size);
}

void check_statistics(const char* op, const char* name, const OptionalTensor& optional,
                      const c10::SymInt& groups, const at::Tensor& input) {
  if (!optional.has_value() || !optional->defined()) return;
  const at::Tensor& tensor = *optional;
  TORCH_CHECK(tensor.dim() == 2 && tensor.sym_size(0) == groups && tensor.sym_size(1) == input.sym_size(1),
              op, ": ", name, " must be [", groups, ", ", input.sym_size(1), "], got sizes ",
              tensor.sym_sizes());
  check_device(op, name, tensor, input);
  check_type(op, name, tensor, input);
}

// The tensor that torch.func differentiates: it wraps every argument, captured ones too.
at::Tensor unwrapped(at::Tensor tensor) {
  while (const auto* wrapper = at::functorch::maybeGetTensorWrapper(tensor)) tensor = wrapper->value();
  return tensor;
}

// Averages that no training produces: dividing by them would give infinities or a wrong sign. Only the CPU
// reads them: on other devices the host would wait.
void check_averages(const char* op, const OptionalTensor& running_mean, const OptionalTensor& running_std) {
  if (!running_std.has_value() || !running_std->defined() || composite_is_forced()) return;
  at::Tensor mean = unwrapped(*running_mean);
  at::Tensor std = unwrapped(*running_std);
  if (!is_readable(mean) || !is_readable(std)) return;
  mean = unwrapped(mean.contiguous());
  std = unwrapped(std.contiguous());
  AT_DISPATCH_FLOATING_TYPES(std.scalar_type(), "renorm::check_averages", [&] {
    const auto* stds = std.data_ptr<scalar_t>();
    const int64_t bad_std = kernels::find_not_positive(stds, std.numel());
    TORCH_CHECK(bad_std < 0, op, ": running_std must be finite and > 0, got ", stds[bad_std], " in channel ",
                bad_std);
    const auto* means = mean.data_ptr<scalar_t>();
    const int64_t bad_mean = kernels::find_non_finite(means, mean.numel());
    TORCH_CHECK(bad_mean < 0, op, ": running_mean must be finite, got ", means[bad_mean], " in channel ",
                bad_mean);
  });
}

}  // namespace

void check_batch_renorm(const ForwardArguments& a) {
  check_input(a.op, a.input);
  check_per_channel(a.op, "weight", a.weight, a.input);
  check_per_channel(a.op, "bias", a.bias, a.input);
  TORCH_CHECK(a.running_mean.has_value() == a.running_std.has_value(), a.op,
              ": running_mean and running_std must be given together, got only ",
              a.running_mean.has_value() ? "running_mean" : "running_std");
  check_per_channel(a.op, "running_mean", a.running_mean, a.input);
  check_per_channel(a.op, "running_std", a.running_std, a.input);
  check_residual(a.op, a.residual, a.input);
  check_eps(a.op, a.eps, a.input);
  check_clip(a.op, a.limits, a.input);
  check_groups(a.op, a.group_size, a.input);
  check_averages(a.op, a.running_mean, a.running_std);
}

void check_batch_renorm_backward(const BackwardArguments& a) {
  const char* op = kBackwardOp;
  check_input(op, a.input);
  TORCH_CHECK(a.grad_output.defined() && a.batch_mean.defined() && a.batch_std.defined(), op,
              ": grad_output, batch_mean and batch_std must be tensors, got an undefined one");
  check_like_input(op, "grad_output", a.grad_output, a.input);
  check_per_channel(op, "weight", a.weight, a.input);
  check_per_channel(op, "bias", a.bias, a.input);
  check_mask(op, a);
  check_groups(op, a.group_size, a.input);
  const c10::SymInt groups = sym_group_count(a.input, a.group_size);
  check_statistics(op, "batch_mean", a.batch_mean, groups, a.input);
  check_statistics(op, "batch_mean_low", a.batch_mean_low, groups, a.input);
  check_statistics(op, "batch_std", a.batch_std, groups, a.input);
  check_statistics(op, "r", a.r, groups, a.input);
  check_statistics(op, "d", a.d, groups, a.input);
}

void check_batch_renorm_inference(const InferenceArguments& a) {
  const char* op = kInferenceOp;
  check_input(op, a.input);
  TORCH_CHECK(a.running_mean.defined() && a.running_std.defined(), op,
              ": running_mean and running_std must be tensors, got none");
  check_per_channel(op, "weight", a.weight, a.input);
  check_per_channel(op, "bias", a.bias, a.input);
  check_per_channel(op, "running_mean", a.running_mean, a.input);
  check_per_channel(op, "running_std", a.running_std, a.input);
  check_residual(op, a.residual, a.input);
  check_averages(op, a.running_mean, a.running_std);
}

void check_move_averages(const at::Tensor& running_mean, const at::Tensor& running_std,
                         const at::Tensor& step, const at::Tensor& batch_mean, const at::Tensor& batch_std,
                         const Optional<double>& momentum) {
  const char* op = kMoveOp;
  TORCH_CHECK(running_mean.dim() == 1 && running_mean.sym_sizes() == running_std.sym_sizes(), op,
              ": running_mean and running_std must be [channels], got sizes ", running_mean.sym_sizes(),
              " and ", running_std.sym_sizes());
  TORCH_CHECK(batch_mean.dim() == 2 && batch_mean.sym_size(1) == running_mean.sym_size(0) &&
                  batch_mean.sym_sizes() == batch_std.sym_sizes(),
              op, ": batch_mean and batch_std must be [groups, ", running_mean.sym_size(0), "], got sizes ",
              batch_mean.sym_sizes(), " and ", batch_std.sym_sizes());
  const at::ScalarType type = running_mean.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kDouble, op, ": running_mean must be Float or Double, got ",
              type);
  for (const at::Tensor* tensor : {&running_std, &batch_mean, &batch_std}) {
    TORCH_CHECK(tensor->scalar_type() == type && tensor->device() == running_mean.device(), op,
                ": averages and statistics must have one dtype and device, got ", type, " on ",
                running_mean.device(), " and ", tensor->scalar_type(), " on ", tensor->device());
  }
  TORCH_CHECK(step.scalar_type() == at::kLong && step.dim() == 0, op,
              ": step must be one int64 without dimensions, got ", step.scalar_type(), " of sizes ",
              step.sym_sizes());
  check_device(op, "step", step, running_mean);
  TORCH_CHECK(!momentum.has_value() || (*momentum >= 0.0 && *momentum <= 1.0), op,
              ": momentum must be in [0, 1] or none, got ", momentum.value_or(0.0));
}

void check_statistics_arguments(const at::Tensor& input) { check_input(kStatisticsOp, input); }

void check_merge(const MergeArguments& a) {
  const char* op = kMergeOp;
  const at::Tensor& rows = a.statistics;
  TORCH_CHECK(rows.scalar_type() == at::kDouble && rows.dim() == 2 && rows.sym_size(1) % 2 == 1, op,
              ": statistics must be [processes, 2 * channels + 1] of type Double, got ", rows.scalar_type(),
              " of sizes ", rows.sym_sizes());
  TORCH_CHECK(a.dtype == at::kFloat || a.dtype == at::kDouble, op, ": dtype must be Float or Double, got ",
              a.dtype);
  TORCH_CHECK(a.eps > 0.0 && (a.dtype == at::kDouble || static_cast<float>(a.eps) > 0.0F), op,
              ": eps must be > 0 as a ", a.dtype, ", got ", a.eps);
  const bool has_averages = a.running_mean.has_value();
  TORCH_CHECK(has_averages == a.running_std.has_value() && has_averages == a.limits.step.has_value(), op,
              ": running_mean, running_std and step must be given together or not at all");
  check_clip(op, a.limits, rows);
  if (!has_averages) return;
  for (const at::Tensor* average : {&*a.running_mean, &*a.running_std}) {
    TORCH_CHECK(average->dim() == 1 && average->sym_size(0) * 2 + 1 == rows.sym_size(1) &&
                    average->scalar_type() == a.dtype,
                op, ": running_mean and running_std must be ", a.dtype, " of ", (rows.sym_size(1) - 1) / 2,
                " channels, got ", average->scalar_type(), " of sizes ", average->sym_sizes());
    check_device(op, "an average", *average, rows);
  }
  check_averages(op, a.running_mean, a.running_std);
}

void check_apply(const ApplyArguments& a) {
  check_input(a.op, a.input);
  TORCH_CHECK(a.batch_mean.defined() && a.batch_std.defined(), a.op,
              ": batch_mean and batch_std must be tensors, got an undefined one");
  check_per_channel(a.op, "weight", a.weight, a.input);
  check_per_channel(a.op, "bias", a.bias, a.input);
  check_statistics(a.op, "batch_mean", a.batch_mean, 1, a.input);
  check_statistics(a.op, "batch_mean_low", a.batch_mean_low, 1, a.input);
  check_statistics(a.op, "batch_std", a.batch_std, 1, a.input);
  check_statistics(a.op, "r", a.r, 1, a.input);
  check_statistics(a.op, "d", a.d, 1, a.input);
}

void check_backward_sums(const SumsArguments& a) {
  check_apply(a.forward);
  check_like_input(a.forward.op, "grad_output", a.grad_output, a.forward.input);
}

void check_backward_apply(const GradientArguments& a) {
  const ApplyArguments& f = a.forward;
  check_backward_sums({a.grad_output, f});
  TORCH_CHECK(a.sums.scalar_type() == at::kDouble && a.sums.dim() == 2 && a.sums.sym_size(0) == 2 &&
                  a.sums.sym_size(1) == f.input.sym_size(1),
              f.op, ": sums must be [2, ", f.input.sym_size(1), "] of type Double, got ",
              a.sums.scalar_type(), " of sizes ", a.sums.sym_sizes());
  TORCH_CHECK(a.count.scalar_type() == at::kDouble && a.count.dim() == 0, f.op,
              ": count must be one Double without dimensions, got ", a.count.scalar_type(), " of sizes ",
              a.count.sym_sizes());
  check_device(f.op, "sums", a.sums, f.input);
  check_device(f.op, "count", a.count, f.input);
}

bool is_readable(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrapped{c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                                         c10::DispatchKey::FuncTorchGradWrapper,
                                         c10::DispatchKey::FuncTorchBatched};
  return tensor.is_cpu() && !tensor.key_set().has_any(kWrapped);
}

bool has_mask(const ForwardArguments& a) {
  return a.activation == Activation::kRelu && a.residual.has_value() && a.residual->defined();
}

c10::SymInt sym_group_count(const at::Tensor& input, int64_t group_size) {
  if (input.sym_numel() == 0) return 0;
  return group_size == 0 ? c10::SymInt(1) : input.sym_size(0) / group_size;
}

int64_t group_count(const at::Tensor& input, int64_t group_size) {
  if (input.numel() == 0) return 0;
  return group_size == 0 ? 1 : input.size(0) / group_size;
}

c10::string_view name_of(Grouping grouping) {
  return grouping == Grouping::kStrided ? "strided" : "contiguous";
}

c10::string_view name_of(Activation activation) { return activation == Activation::kRelu ? "relu" : "none"; }

Grouping parse_grouping(const char* op, c10::string_view name) {
  for (const Grouping grouping : {Grouping::kContiguous, Grouping::kStrided}) {
    if (name == name_of(grouping)) return grouping;
  }
  TORCH_CHECK(false, op, ": grouping must be 'contiguous' or 'strided', got '", name, "'");
}

Activation parse_activation(const char* op, c10::string_view name) {
  for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
    if (name == name_of(activation)) return activation;
  }
  TORCH_CHECK(false, op, ": activation must be 'none' or 'relu', got '", name, "'");
}

bool is_channels_last(const at::Tensor& tensor) {
  c10::SymInt expected = tensor.sym_size(1);
  if (expected != 1 && tensor.sym_stride(1) != 1) return false;
  for (int64_t dim = tensor.dim() - 1; dim >= 2; --dim) {
    if (tensor.sym_size(dim) != 1 && tensor.sym_stride(dim) != expected) return false;
    expected = expected * tensor.sym_size(dim);
  }
  return tensor.sym_size(0) == 1 || tensor.sym_stride(0) == expected;
}

at::Tensor dense(const at::Tensor& tensor) {
  return is_channels_last(tensor) ? tensor : tensor.contiguous(tensor.suggest_memory_format());
}

bool dense_is_channels_last(const at::Tensor& tensor) {
  return tensor.suggest_memory_format() != at::MemoryFormat::Contiguous ||
         (is_channels_last(tensor) && !tensor.is_contiguous());
}

bool mask_is_channels_last(const at::Tensor& mask) {
  return mask.contiguous().data_ptr<uint8_t>()[mask.numel() - 1] != 0;
}

at::Tensor in_order(const at::Tensor& tensor, bool channels_last) {
  return channels_last ? tensor.movedim(1, -1).contiguous().movedim(-1, 1) : tensor.contiguous();
}

at::Tensor in_order_of(const at::Tensor& tensor, const at::Tensor& like) {
  return in_order(tensor, dense_is_channels_last(like));
}

}  // namespace renorm::ops
