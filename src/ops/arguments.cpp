#include "ops/arguments.h"

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
              " dimension(s) of sizes ", input.sizes());
}

void check_device(const char* op, const char* name, const at::Tensor& tensor, const at::Tensor& input) {
  TORCH_CHECK(tensor.device() == input.device(), op, ": ", name, " must be on the device of input, ",
              input.device(), ", got ", tensor.device());
}

void check_per_channel(const char* op, const char* name, const OptionalTensor& optional,
                       const at::Tensor& input) {
  if (!optional.has_value() || !optional->defined()) return;
  const at::Tensor& tensor = *optional;
  TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) == input.size(1), op, ": ", name,
              " must have one value for each of the ", input.size(1), " channels of input, got sizes ",
              tensor.sizes());
  check_device(op, name, tensor, input);
  const at::ScalarType expected = statistics_type(input.scalar_type());
  TORCH_CHECK(tensor.scalar_type() == expected, op, ": ", name, " must be ", expected, " for input of type ",
              input.scalar_type(), ", got ", tensor.scalar_type());
}

void check_activation(const char* op, int64_t activation) {
  TORCH_CHECK(activation == static_cast<int64_t>(Activation::kNone) ||
                  activation == static_cast<int64_t>(Activation::kRelu),
              op, ": activation must be 0 (none) or 1 (relu), got ", activation);
}

void check_limits(const char* op, const BatchRenormArguments& arguments) {
  TORCH_CHECK(arguments.eps > 0.0, op, ": eps must be > 0, got ", arguments.eps);
  TORCH_CHECK(arguments.r_max >= 1.0, op, ": r_max must be >= 1, got ", arguments.r_max);
  TORCH_CHECK(arguments.d_max >= 0.0, op, ": d_max must be >= 0, got ", arguments.d_max);
}

void check_groups(const char* op, int64_t group_size, Grouping grouping, const at::Tensor& input) {
  TORCH_CHECK(group_size >= 0, op, ": group_size must be >= 0 (0 = the whole batch), got ", group_size);
  TORCH_CHECK(group_size == 0 || input.size(0) % group_size == 0, op,
              ": group_size must divide the batch of ", input.size(0), " examples, got ", group_size);
  TORCH_CHECK(grouping == Grouping::kContiguous || grouping == Grouping::kStrided, op,
              ": grouping must be 0 (contiguous) or 1 (strided), got ", static_cast<int64_t>(grouping));
}

void check_statistics(const char* op, const char* name, const OptionalTensor& optional, int64_t groups,
                      const at::Tensor& input) {
  if (!optional.has_value() || !optional->defined()) return;
  const at::Tensor& tensor = *optional;
  TORCH_CHECK(tensor.dim() == 2 && tensor.size(0) == groups && tensor.size(1) == input.size(1), op, ": ",
              name, " must be [", groups, ", ", input.size(1), "], got sizes ", tensor.sizes());
  check_device(op, name, tensor, input);
  TORCH_CHECK(tensor.scalar_type() == statistics_type(input.scalar_type()), op, ": ", name, " must be ",
              statistics_type(input.scalar_type()), " for input of type ", input.scalar_type(), ", got ",
              tensor.scalar_type());
}

}  // namespace

void check_batch_renorm(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                        const OptionalTensor& running_mean, const OptionalTensor& running_std,
                        const BatchRenormArguments& arguments) {
  const char* op = "renorm::batch_renorm";
  check_input(op, input);
  check_per_channel(op, "weight", weight, input);
  check_per_channel(op, "bias", bias, input);
  TORCH_CHECK(running_mean.has_value() == running_std.has_value(), op,
              ": running_mean and running_std must be given together, got only ",
              running_mean.has_value() ? "running_mean" : "running_std");
  check_per_channel(op, "running_mean", running_mean, input);
  check_per_channel(op, "running_std", running_std, input);
  check_limits(op, arguments);
  check_groups(op, arguments.group_size, arguments.grouping, input);
  check_activation(op, static_cast<int64_t>(arguments.activation));
}

void check_batch_renorm_backward(const BackwardArguments& a) {
  const char* op = "renorm::batch_renorm_backward";
  check_input(op, a.input);
  TORCH_CHECK(a.grad_output.sizes() == a.input.sizes(), op, ": grad_output must have the sizes of input, ",
              a.input.sizes(), ", got ", a.grad_output.sizes());
  check_device(op, "grad_output", a.grad_output, a.input);
  check_per_channel(op, "weight", a.weight, a.input);
  check_per_channel(op, "bias", a.bias, a.input);
  check_groups(op, a.group_size, a.grouping, a.input);
  check_activation(op, static_cast<int64_t>(a.activation));
  const int64_t groups = group_count(a.input, a.group_size);
  check_statistics(op, "batch_mean", a.batch_mean, groups, a.input);
  check_statistics(op, "batch_mean_low", a.batch_mean_low, groups, a.input);
  check_statistics(op, "batch_std", a.batch_std, groups, a.input);
  check_statistics(op, "r", a.r, groups, a.input);
  check_statistics(op, "d", a.d, groups, a.input);
}

void check_batch_renorm_inference(const at::Tensor& input, const OptionalTensor& weight,
                                  const OptionalTensor& bias, const at::Tensor& running_mean,
                                  const at::Tensor& running_std, int64_t activation) {
  const char* op = "renorm::batch_renorm_inference";
  check_input(op, input);
  TORCH_CHECK(running_mean.defined() && running_std.defined(), op,
              ": running_mean and running_std must be tensors, got none");
  check_per_channel(op, "weight", weight, input);
  check_per_channel(op, "bias", bias, input);
  check_per_channel(op, "running_mean", running_mean, input);
  check_per_channel(op, "running_std", running_std, input);
  check_activation(op, activation);
}

int64_t group_count(const at::Tensor& input, int64_t group_size) {
  if (input.numel() == 0) return 0;
  return group_size == 0 ? 1 : input.size(0) / group_size;
}

bool is_channels_last(const at::Tensor& tensor) {
  int64_t expected = tensor.size(1);
  if (expected != 1 && tensor.stride(1) != 1) return false;
  for (int64_t dim = tensor.dim() - 1; dim >= 2; --dim) {
    if (tensor.size(dim) != 1 && tensor.stride(dim) != expected) return false;
    expected *= tensor.size(dim);
  }
  return tensor.size(0) == 1 || tensor.stride(0) == expected;
}

at::Tensor dense(const at::Tensor& tensor) {
  return is_channels_last(tensor) ? tensor : tensor.contiguous(tensor.suggest_memory_format());
}

at::Tensor in_order_of(const at::Tensor& tensor, const at::Tensor& like) {
  const bool channels_last = like.suggest_memory_format() != at::MemoryFormat::Contiguous ||
                             (is_channels_last(like) && !like.is_contiguous());
  return channels_last ? tensor.movedim(1, -1).contiguous().movedim(-1, 1) : tensor.contiguous();
}

}  // namespace renorm::ops
