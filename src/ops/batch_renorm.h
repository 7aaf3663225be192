// The operators as the dispatcher calls them. Their schemas are in batch_renorm.cpp.
#pragma once

#include <ATen/ATen.h>
#include <renorm/ops/batch_renorm.h>

#include <array>
#include <tuple>

namespace renorm::ops {

using OptionalTensor = Optional<at::Tensor>;

inline OptionalTensor optional(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : OptionalTensor();
}
inline at::Tensor value_or_undefined(const OptionalTensor& tensor) {
  return tensor.has_value() ? *tensor : at::Tensor();
}

// output, batch_mean, batch_mean_low, batch_std, r, d
using ForwardTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
// Gradients of input, weight and bias; undefined where output_mask is false.
using BackwardTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Arguments of renorm::batch_renorm_backward, the gradient with r and d constant. Statistics are
// [groups, channels]. Tensors are the caller's: the struct is valid only during a call.
struct BackwardArguments {
  const at::Tensor& grad_output;
  const at::Tensor& input;
  const OptionalTensor& weight;  // absent: 1
  const OptionalTensor& bias;    // absent: 0
  const at::Tensor& batch_mean;
  const OptionalTensor& batch_mean_low;  // absent: 0
  const at::Tensor& batch_std;
  const OptionalTensor& r;  // absent: 1
  const OptionalTensor& d;  // absent: 0
  int64_t group_size;
  Grouping grouping;
  Activation activation;
  bool frozen;  // batch_mean and batch_std are constant too, as in inference
  std::array<bool, 3> output_mask;
};

// Calls through the dispatcher.
ForwardTensors call_batch_renorm(const at::Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, const OptionalTensor& running_mean,
                                 const OptionalTensor& running_std, const BatchRenormArguments& arguments);
BackwardTensors call_batch_renorm_backward(const BackwardArguments& arguments);
at::Tensor call_batch_renorm_inference(const at::Tensor& input, const OptionalTensor& weight,
                                       const OptionalTensor& bias, const at::Tensor& running_mean,
                                       const at::Tensor& running_std, int64_t activation);

// The operators where there is no fused kernel.
ForwardTensors batch_renorm_forward_composite(const at::Tensor& input, const OptionalTensor& weight,
                                              const OptionalTensor& bias, const OptionalTensor& running_mean,
                                              const OptionalTensor& running_std,
                                              const BatchRenormArguments& arguments);
BackwardTensors batch_renorm_backward_composite(const BackwardArguments& arguments);
at::Tensor batch_renorm_inference_composite(const at::Tensor& input, const OptionalTensor& weight,
                                            const OptionalTensor& bias, const at::Tensor& running_mean,
                                            const at::Tensor& running_std, int64_t activation);

// The schema's flat list of arguments in front of an implementation:
//   m.impl("batch_renorm", TORCH_FN(flat_forward<batch_renorm_cpu>));
template <decltype(call_batch_renorm)* implementation>
ForwardTensors flat_forward(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                            const OptionalTensor& running_mean, const OptionalTensor& running_std, double eps,
                            double r_max, double d_max, int64_t group_size, int64_t grouping,
                            int64_t activation) {
  return implementation(
      input, weight, bias, running_mean, running_std,
      {eps, r_max, d_max, group_size, static_cast<Grouping>(grouping), static_cast<Activation>(activation)});
}

template <decltype(call_batch_renorm_backward)* implementation>
BackwardTensors flat_backward(const at::Tensor& grad_output, const at::Tensor& input,
                              const OptionalTensor& weight, const OptionalTensor& bias,
                              const at::Tensor& batch_mean, const OptionalTensor& batch_mean_low,
                              const at::Tensor& batch_std, const OptionalTensor& r, const OptionalTensor& d,
                              int64_t group_size, int64_t grouping, int64_t activation, bool frozen,
                              std::array<bool, 3> output_mask) {
  return implementation({grad_output, input, weight, bias, batch_mean, batch_mean_low, batch_std, r, d,
                         group_size, static_cast<Grouping>(grouping), static_cast<Activation>(activation),
                         frozen, output_mask});
}

}  // namespace renorm::ops
