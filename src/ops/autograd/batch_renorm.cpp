// Gradients of the operators. r and d are constants, so the statistics have no gradient.
#include "ops/batch_renorm.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <iterator>

#include "ops/arguments.h"
#include "ops/autograd/tensors.h"

namespace renorm::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The differentiable arguments of an operator; absent ones are null.
using Arguments = std::array<const at::Tensor*, 4>;

Arguments arguments_of(const ForwardArguments& a) {
  return {&a.input, pointer(a.weight), pointer(a.bias), pointer(a.residual)};
}
Arguments arguments_of(const InferenceArguments& a) {
  return {&a.input, pointer(a.weight), pointer(a.bias), pointer(a.residual)};
}
Arguments arguments_of(const BackwardArguments& a) {
  return {&a.input, pointer(a.weight), pointer(a.bias), &a.grad_output};
}

template <class Predicate>
bool any(const Arguments& arguments, const Predicate& predicate) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [&](const at::Tensor* tensor) { return tensor != nullptr && predicate(*tensor); });
}

bool requires_grad(const Arguments& arguments) {
  return at::GradMode::is_enabled() &&
         any(arguments, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

// Whether torch.func differentiates. It rejects nodes written in C++, so the operators are then computed in
// ATen operations.
bool in_function_transform(const Arguments& arguments) {
  return any(arguments, [](const at::Tensor& tensor) {
    return tensor.key_set().has(c10::DispatchKey::FuncTorchGradWrapper);
  });
}

// The tensors that reverse mode holds constant.
std::array<const at::Tensor*, 2> constants_of(const ForwardArguments& a) {
  return {pointer(a.running_mean), pointer(a.running_std)};
}
std::array<const at::Tensor*, 2> constants_of(const InferenceArguments& a) {
  return {&a.running_mean, &a.running_std};
}
std::array<const at::Tensor*, 5> constants_of(const BackwardArguments& a) {
  return {&a.batch_mean, pointer(a.batch_mean_low), &a.batch_std, pointer(a.r), pointer(a.d)};
}

// Indices of the tensors saved by the forward of either operator; inference alone saves an output.
enum Saved : size_t { kInput, kWeight, kBias, kMask, kBatchMean, kBatchMeanLow, kBatchStd, kR, kD, kOutput };

// One bit each for input, weight, bias and residual. The edges of a node are not used, because LibTorch
// releases number them differently where an argument is absent.
int64_t gradient_mask(const Arguments& arguments) {
  int64_t mask = 0;
  for (size_t i = 0; i < 4; ++i) {
    if (arguments[i] != nullptr && arguments[i]->requires_grad()) mask |= int64_t{1} << i;
  }
  return mask;
}

// The options of a node. They are kept as one integer, because each entry of a node costs two allocations.
struct NodeOptions {
  int64_t mask;  // of gradients, 4 bits
  Activation activation;
  Grouping grouping;
  int64_t group_size;

  static_assert(static_cast<int>(Activation::kRelu) <= 1 && static_cast<int>(Grouping::kStrided) <= 1,
                "one bit each");
  int64_t packed() const {
    return mask | static_cast<int64_t>(activation) << 4 | static_cast<int64_t>(grouping) << 5 |
           group_size << 6;
  }
  static NodeOptions unpacked(int64_t bits) {
    return {bits & 15, static_cast<Activation>(bits >> 4 & 1), static_cast<Grouping>(bits >> 5 & 1),
            bits >> 6};
  }
};
constexpr const char* kOptions = "options";

// Saves what the backward needs. It needs the bias only where it recomputes the mask of the ReLU.
void save(AutogradContext* context, const Arguments& arguments, NodeOptions options, const at::Tensor& mask,
          variable_list statistics) {
  const auto of = [&](size_t i, bool needed) {
    return needed && arguments[i] != nullptr ? *arguments[i] : at::Tensor();
  };
  const bool recomputes = options.activation == Activation::kRelu && arguments[3] == nullptr;
  variable_list saved;
  saved.reserve(kOutput + 1);
  saved = {of(0, true), of(1, true), of(2, recomputes), mask};
  std::move(statistics.begin(), statistics.end(), std::back_inserter(saved));
  context->save_for_backward(std::move(saved));
  options.mask = gradient_mask(arguments);
  context->saved_data[kOptions] = options.packed();
}

// Gradients of input, weight, bias and residual.
variable_list gradients(const variable_list& saved, const NodeOptions& options, const at::Tensor& grad_output,
                        bool frozen) {
  const auto wanted = [&](int bit) { return (options.mask >> bit & 1) != 0; };
  // Without an activation the gradient of the residual is that of the output.
  const bool passes_through = options.activation == Activation::kNone;
  auto [dinput, dweight, dbias, dresidual] =
      call_batch_renorm_backward({grad_output,
                                  saved[kInput],
                                  optional(saved[kWeight]),
                                  optional(saved[kBias]),
                                  optional(saved[kMask]),
                                  saved[kBatchMean],
                                  optional(saved[kBatchMeanLow]),
                                  saved[kBatchStd],
                                  optional(saved[kR]),
                                  optional(saved[kD]),
                                  options.group_size,
                                  options.grouping,
                                  options.activation,
                                  frozen,
                                  {wanted(0), wanted(1), wanted(2), wanted(3) && !passes_through}});
  if (wanted(3) && passes_through) dresidual = grad_output;
  return {dinput, dweight, dbias, dresidual};
}

// The nodes take the differentiable tensors as arguments of their own, and the rest in structs without a
// gradient. The statistics and the mask leave by a struct too: results of a node cost more than plain
// tensors.
struct BatchRenormGradient : torch::autograd::Function<BatchRenormGradient> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& /*input*/,
                            const OptionalTensor& /*weight*/, const OptionalTensor& /*bias*/,
                            const OptionalTensor& /*residual*/, const ForwardArguments* a,
                            ForwardTensors* result) {
    at::AutoDispatchBelowADInplaceOrView below;
    *result = call_batch_renorm(*a);
    const auto& [output, batch_mean, batch_mean_low, batch_std, r, d, mask] = *result;
    save(context, arguments_of(*a), {0, a->activation, a->grouping, a->group_size}, mask,
         {batch_mean, batch_mean_low, batch_std, r, d});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    variable_list result = gradients(context->get_saved_variables(),
                                     NodeOptions::unpacked(context->saved_data[kOptions].toInt()),
                                     grad_outputs[0], /*frozen=*/false);
    result.resize(6);  // the structs have no gradient
    return result;
  }
};

// With a residual and ReLU, the output itself is the mask.
struct InferenceGradient : torch::autograd::Function<InferenceGradient> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& /*input*/,
                            const OptionalTensor& /*weight*/, const OptionalTensor& /*bias*/,
                            const OptionalTensor& /*residual*/, const InferenceArguments* a) {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor output = call_batch_renorm_inference(*a);
    // A copy: the averages change in place, and this gradient uses their present values.
    const at::Tensor averages = at::stack({a->running_mean, a->running_std});
    const bool masked = a->activation == Activation::kRelu && pointer(a->residual) != nullptr;
    save(context, arguments_of(*a), {0, masked ? Activation::kNone : a->activation, Grouping::kContiguous, 0},
         at::Tensor(),
         {averages, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), masked ? output : at::Tensor()});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    variable_list saved = context->get_saved_variables();
    const at::Tensor averages = saved[kBatchMean];
    const auto as_statistics = [&](int64_t row) {  // of one group, or of none for an empty batch
      return averages.slice(0, row, saved[kInput].sym_numel() == 0 ? row : row + 1);
    };
    saved[kBatchMean] = as_statistics(0);
    saved[kBatchStd] = as_statistics(1);
    at::Tensor grad_output = grad_outputs[0];
    if (const at::Tensor& output = saved[kOutput]; output.defined()) {
      grad_output = at::where(output.le(0), at::zeros({}, grad_output.options()), grad_output);
    }
    variable_list result = gradients(saved, NodeOptions::unpacked(context->saved_data[kOptions].toInt()),
                                     grad_output, /*frozen=*/true);
    result.emplace_back();
    return result;
  }
};

ForwardTensors batch_renorm_autograd(const ForwardArguments& a) {
  const Arguments arguments = arguments_of(a);
  check_no_tangent(a.op, arguments);
  check_no_tangent(a.op, constants_of(a));
  if (!requires_grad(arguments)) {
    at::AutoDispatchBelowADInplaceOrView below;
    return call_batch_renorm(a);
  }
  if (in_function_transform(arguments)) return batch_renorm_forward_composite(a);
  ForwardTensors result;
  std::get<0>(result) = BatchRenormGradient::apply(a.input, a.weight, a.bias, a.residual, &a, &result);
  return result;
}

at::Tensor batch_renorm_inference_autograd(const InferenceArguments& a) {
  const Arguments arguments = arguments_of(a);
  check_no_tangent(kInferenceOp, arguments);
  check_no_tangent(kInferenceOp, constants_of(a));
  if (!requires_grad(arguments)) {
    at::AutoDispatchBelowADInplaceOrView below;
    return call_batch_renorm_inference(a);
  }
  if (in_function_transform(arguments)) return batch_renorm_inference_composite(a);
  return InferenceGradient::apply(a.input, a.weight, a.bias, a.residual, &a);
}

// With create_graph the gradient itself is differentiated: in ATen operations, through the statistics.
BackwardTensors batch_renorm_backward_autograd(const BackwardArguments& a) {
  const Arguments arguments = arguments_of(a);
  check_no_tangent(kBackwardOp, arguments);
  check_no_tangent(kBackwardOp, constants_of(a));
  if (requires_grad(arguments)) return batch_renorm_backward_differentiable(a);
  at::AutoDispatchBelowADInplaceOrView below;
  return call_batch_renorm_backward(a);
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, Autograd, m) {
  m.impl("batch_renorm", TORCH_FN(renorm::ops::flat_forward<renorm::ops::batch_renorm_autograd>));
  m.impl("batch_renorm_step", TORCH_FN(renorm::ops::flat_step<renorm::ops::batch_renorm_autograd>));
  m.impl("batch_renorm_backward",
         TORCH_FN(renorm::ops::flat_backward<renorm::ops::batch_renorm_backward_autograd>));
  m.impl("batch_renorm_inference",
         TORCH_FN(renorm::ops::flat_inference<renorm::ops::batch_renorm_inference_autograd>));
}
