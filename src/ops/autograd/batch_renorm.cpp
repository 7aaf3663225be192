// Derivatives of the operators. r and d are constants, so the statistics carry no gradient.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/schema.h"

namespace renorm::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool wants_gradient(const OptionalTensor& tensor) { return tensor.has_value() && tensor->requires_grad(); }

bool wants_gradient(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias) {
  return at::GradMode::is_enabled() &&
         (input.requires_grad() || wants_gradient(weight) || wants_gradient(bias));
}

// The layout of what the forward keeps, the same for both operators.
enum Saved : size_t { kInput, kWeight, kBias, kBatchMean, kBatchMeanLow, kBatchStd, kR, kD };

// One bit for each of input, weight and bias. (The edges of a node are numbered differently from release to
// release where an argument is absent.)
int64_t wanted_gradients(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias) {
  return (input.requires_grad() ? 1 : 0) | (wants_gradient(weight) ? 2 : 0) | (wants_gradient(bias) ? 4 : 0);
}

variable_list gradients(AutogradContext* context, const at::Tensor& grad_output, int64_t group_size,
                        int64_t grouping, bool frozen, size_t arguments) {
  const variable_list saved = context->get_saved_variables();
  const int64_t wanted = context->saved_data["wanted"].toInt();
  const std::array<bool, 3> mask{(wanted & 1) != 0, (wanted & 2) != 0, (wanted & 4) != 0};
  auto [dinput, dweight, dbias] = call_batch_renorm_backward(
      grad_output, saved[kInput], optional(saved[kWeight]), optional(saved[kBias]), saved[kBatchMean],
      optional(saved[kBatchMeanLow]), saved[kBatchStd], optional(saved[kR]), optional(saved[kD]), group_size,
      grouping, context->saved_data["activation"].toInt(), frozen, mask);
  variable_list result(arguments);
  result[0] = dinput;
  result[1] = dweight;
  result[2] = dbias;
  return result;
}

struct BatchRenormGradient : torch::autograd::Function<BatchRenormGradient> {
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const OptionalTensor& weight, const OptionalTensor& bias,
                               const OptionalTensor& running_mean, const OptionalTensor& running_std,
                               double eps, double r_max, double d_max, int64_t group_size, int64_t grouping,
                               int64_t activation) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [output, batch_mean, batch_mean_low, batch_std, r, d] = call_batch_renorm(
        input, weight, bias, running_mean, running_std, eps, r_max, d_max, group_size, grouping, activation);
    context->save_for_backward({input, value_or_undefined(weight), value_or_undefined(bias), batch_mean,
                                batch_mean_low, batch_std, r, d});
    context->saved_data["group_size"] = group_size;
    context->saved_data["grouping"] = grouping;
    context->saved_data["activation"] = activation;
    context->saved_data["wanted"] = wanted_gradients(input, weight, bias);
    context->mark_non_differentiable({batch_mean, batch_mean_low, batch_std, r, d});
    return {output, batch_mean, batch_mean_low, batch_std, r, d};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    constexpr size_t kArguments = 11;
    return gradients(context, grad_outputs[0], context->saved_data["group_size"].toInt(),
                     context->saved_data["grouping"].toInt(), /*frozen=*/false, kArguments);
  }
};

struct InferenceGradient : torch::autograd::Function<InferenceGradient> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const OptionalTensor& weight,
                            const OptionalTensor& bias, const at::Tensor& running_mean,
                            const at::Tensor& running_std, int64_t activation) {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor output =
        call_batch_renorm_inference(input, weight, bias, running_mean, running_std, activation);
    // Copies, because averages move in place and this gradient belongs to their values now.
    const auto keep = [&](const at::Tensor& average) {
      return input.numel() == 0 ? at::empty({0, average.size(0)}, average.options())
                                : average.detach().clone().unsqueeze(0);
    };
    context->save_for_backward({input, value_or_undefined(weight), value_or_undefined(bias),
                                keep(running_mean), at::Tensor(), keep(running_std), at::Tensor(),
                                at::Tensor()});
    context->saved_data["activation"] = activation;
    context->saved_data["wanted"] = wanted_gradients(input, weight, bias);
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    constexpr size_t kArguments = 6;
    return gradients(context, grad_outputs[0], /*group_size=*/0, /*grouping=*/0, /*frozen=*/true, kArguments);
  }
};

ForwardTensors batch_renorm_autograd(const at::Tensor& input, const OptionalTensor& weight,
                                     const OptionalTensor& bias, const OptionalTensor& running_mean,
                                     const OptionalTensor& running_std, double eps, double r_max,
                                     double d_max, int64_t group_size, int64_t grouping, int64_t activation) {
  if (!wants_gradient(input, weight, bias)) {
    at::AutoDispatchBelowADInplaceOrView below;
    return call_batch_renorm(input, weight, bias, running_mean, running_std, eps, r_max, d_max, group_size,
                             grouping, activation);
  }
  variable_list result = BatchRenormGradient::apply(input, weight, bias, running_mean, running_std, eps,
                                                    r_max, d_max, group_size, grouping, activation);
  return {result[0], result[1], result[2], result[3], result[4], result[5]};
}

at::Tensor batch_renorm_inference_autograd(const at::Tensor& input, const OptionalTensor& weight,
                                           const OptionalTensor& bias, const at::Tensor& running_mean,
                                           const at::Tensor& running_std, int64_t activation) {
  if (!wants_gradient(input, weight, bias)) {
    at::AutoDispatchBelowADInplaceOrView below;
    return call_batch_renorm_inference(input, weight, bias, running_mean, running_std, activation);
  }
  return InferenceGradient::apply(input, weight, bias, running_mean, running_std, activation);
}

BackwardTensors batch_renorm_backward_autograd(
    const at::Tensor& grad_output, const at::Tensor& input, const OptionalTensor& weight,
    const OptionalTensor& bias, const at::Tensor& batch_mean, const OptionalTensor& batch_mean_low,
    const at::Tensor& batch_std, const OptionalTensor& r, const OptionalTensor& d, int64_t group_size,
    int64_t grouping, int64_t activation, bool frozen, std::array<bool, 3> output_mask) {
  TORCH_CHECK(
      !(at::GradMode::is_enabled() && (grad_output.requires_grad() || wants_gradient(input, weight, bias))),
      "renorm::batch_renorm_backward: double backward is not supported; call backward without create_graph");
  at::AutoDispatchBelowADInplaceOrView below;
  return call_batch_renorm_backward(grad_output, input, weight, bias, batch_mean, batch_mean_low, batch_std,
                                    r, d, group_size, grouping, activation, frozen, output_mask);
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, Autograd, m) {
  m.impl("batch_renorm", TORCH_FN(renorm::ops::batch_renorm_autograd));
  m.impl("batch_renorm_backward", TORCH_FN(renorm::ops::batch_renorm_backward_autograd));
  m.impl("batch_renorm_inference", TORCH_FN(renorm::ops::batch_renorm_inference_autograd));
}
