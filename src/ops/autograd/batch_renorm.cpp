// Gradients of the operators. r and d are constants, so the statistics have no gradient.
#include "ops/batch_renorm.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace renorm::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool requires_grad(const OptionalTensor& tensor) { return tensor.has_value() && tensor->requires_grad(); }

bool requires_grad(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias) {
  return at::GradMode::is_enabled() &&
         (input.requires_grad() || requires_grad(weight) || requires_grad(bias));
}

// Indices of the tensors saved by the forward of either operator.
enum Saved : size_t { kInput, kWeight, kBias, kBatchMean, kBatchMeanLow, kBatchStd, kR, kD };

// One bit each for input, weight and bias. The edges of a node are not used, because LibTorch releases number
// them differently where an argument is absent.
int64_t gradient_mask(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias) {
  return (input.requires_grad() ? 1 : 0) | (requires_grad(weight) ? 2 : 0) | (requires_grad(bias) ? 4 : 0);
}

// A node returns one gradient per argument of its forward: input, weight, bias, and three without a gradient.
constexpr size_t kForwardArguments = 6;

variable_list gradients(AutogradContext* context, const at::Tensor& grad_output, int64_t group_size,
                        Grouping grouping, bool frozen) {
  const variable_list saved = context->get_saved_variables();
  const int64_t mask = context->saved_data["mask"].toInt();
  const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
  auto [dinput, dweight, dbias] =
      call_batch_renorm_backward({grad_output,
                                  saved[kInput],
                                  optional(saved[kWeight]),
                                  optional(saved[kBias]),
                                  saved[kBatchMean],
                                  optional(saved[kBatchMeanLow]),
                                  saved[kBatchStd],
                                  optional(saved[kR]),
                                  optional(saved[kD]),
                                  group_size,
                                  grouping,
                                  activation,
                                  frozen,
                                  {(mask & 1) != 0, (mask & 2) != 0, (mask & 4) != 0}});
  variable_list result(kForwardArguments);
  result[0] = dinput;
  result[1] = dweight;
  result[2] = dbias;
  return result;
}

struct BatchRenormGradient : torch::autograd::Function<BatchRenormGradient> {
  static variable_list forward(AutogradContext* context, const at::Tensor& input,
                               const OptionalTensor& weight, const OptionalTensor& bias,
                               const OptionalTensor& running_mean, const OptionalTensor& running_std,
                               const BatchRenormArguments& arguments) {
    at::AutoDispatchBelowADInplaceOrView below;
    auto [output, batch_mean, batch_mean_low, batch_std, r, d] =
        call_batch_renorm(input, weight, bias, running_mean, running_std, arguments);
    context->save_for_backward({input, value_or_undefined(weight), value_or_undefined(bias), batch_mean,
                                batch_mean_low, batch_std, r, d});
    context->saved_data["group_size"] = arguments.group_size;
    context->saved_data["grouping"] = static_cast<int64_t>(arguments.grouping);
    context->saved_data["activation"] = static_cast<int64_t>(arguments.activation);
    context->saved_data["mask"] = gradient_mask(input, weight, bias);
    context->mark_non_differentiable({batch_mean, batch_mean_low, batch_std, r, d});
    return {output, batch_mean, batch_mean_low, batch_std, r, d};
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    return gradients(context, grad_outputs[0], context->saved_data["group_size"].toInt(),
                     static_cast<Grouping>(context->saved_data["grouping"].toInt()), /*frozen=*/false);
  }
};

struct InferenceGradient : torch::autograd::Function<InferenceGradient> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const OptionalTensor& weight,
                            const OptionalTensor& bias, const at::Tensor& running_mean,
                            const at::Tensor& running_std, int64_t activation) {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor output =
        call_batch_renorm_inference(input, weight, bias, running_mean, running_std, activation);
    // Copies: the averages change in place, and this gradient uses their present values.
    const auto keep = [&](const at::Tensor& average) {
      return input.numel() == 0 ? at::empty({0, average.size(0)}, average.options())
                                : average.detach().clone().unsqueeze(0);
    };
    context->save_for_backward({input, value_or_undefined(weight), value_or_undefined(bias),
                                keep(running_mean), at::Tensor(), keep(running_std), at::Tensor(),
                                at::Tensor()});
    context->saved_data["activation"] = activation;
    context->saved_data["mask"] = gradient_mask(input, weight, bias);
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    return gradients(context, grad_outputs[0], /*group_size=*/0, Grouping::kContiguous, /*frozen=*/true);
  }
};

ForwardTensors batch_renorm_autograd(const at::Tensor& input, const OptionalTensor& weight,
                                     const OptionalTensor& bias, const OptionalTensor& running_mean,
                                     const OptionalTensor& running_std,
                                     const BatchRenormArguments& arguments) {
  if (!requires_grad(input, weight, bias)) {
    at::AutoDispatchBelowADInplaceOrView below;
    return call_batch_renorm(input, weight, bias, running_mean, running_std, arguments);
  }
  variable_list result =
      BatchRenormGradient::apply(input, weight, bias, running_mean, running_std, arguments);
  return {result[0], result[1], result[2], result[3], result[4], result[5]};
}

at::Tensor batch_renorm_inference_autograd(const at::Tensor& input, const OptionalTensor& weight,
                                           const OptionalTensor& bias, const at::Tensor& running_mean,
                                           const at::Tensor& running_std, int64_t activation) {
  if (!requires_grad(input, weight, bias)) {
    at::AutoDispatchBelowADInplaceOrView below;
    return call_batch_renorm_inference(input, weight, bias, running_mean, running_std, activation);
  }
  return InferenceGradient::apply(input, weight, bias, running_mean, running_std, activation);
}

BackwardTensors batch_renorm_backward_autograd(const BackwardArguments& arguments) {
  TORCH_CHECK(
      !(at::GradMode::is_enabled() && (arguments.grad_output.requires_grad() ||
                                       requires_grad(arguments.input, arguments.weight, arguments.bias))),
      "renorm::batch_renorm_backward: double backward is not supported; call backward without create_graph");
  at::AutoDispatchBelowADInplaceOrView below;
  return call_batch_renorm_backward(arguments);
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, Autograd, m) {
  m.impl("batch_renorm", TORCH_FN(renorm::ops::flat_forward<renorm::ops::batch_renorm_autograd>));
  m.impl("batch_renorm_backward",
         TORCH_FN(renorm::ops::flat_backward<renorm::ops::batch_renorm_backward_autograd>));
  m.impl("batch_renorm_inference", TORCH_FN(renorm::ops::batch_renorm_inference_autograd));
}
