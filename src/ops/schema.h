// The operators' C++ signatures, one for each schema, and calls of them through the dispatcher.
#pragma once

#include <ATen/ATen.h>
#include <renorm/ops/batch_renorm.h>

#include <array>
#include <tuple>

namespace renorm::ops {

using OptionalTensor = c10::optional<at::Tensor>;

// output, batch_mean, batch_mean_low, batch_std, r, d
using ForwardTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
// gradients of input, weight and bias; undefined where the mask says so
using BackwardTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

ForwardTensors call_batch_renorm(const at::Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, const OptionalTensor& running_mean,
                                 const OptionalTensor& running_std, double eps, double r_max, double d_max,
                                 int64_t group_size, int64_t grouping, int64_t activation);

// The gradient with r and d constant; `frozen`: with batch_mean and batch_std constant too, as in inference.
// Statistics are [groups, channels]; batch_mean_low, r, d absent are 0, 1, 0.
BackwardTensors call_batch_renorm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                           const OptionalTensor& weight, const OptionalTensor& bias,
                                           const at::Tensor& batch_mean, const OptionalTensor& batch_mean_low,
                                           const at::Tensor& batch_std, const OptionalTensor& r,
                                           const OptionalTensor& d, int64_t group_size, int64_t grouping,
                                           int64_t activation, bool frozen, std::array<bool, 3> output_mask);

at::Tensor call_batch_renorm_inference(const at::Tensor& input, const OptionalTensor& weight,
                                       const OptionalTensor& bias, const at::Tensor& running_mean,
                                       const at::Tensor& running_std, int64_t activation);

using BatchRenormFunction = decltype(call_batch_renorm);
using BatchRenormBackwardFunction = decltype(call_batch_renorm_backward);
using BatchRenormInferenceFunction = decltype(call_batch_renorm_inference);

inline OptionalTensor optional(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : OptionalTensor();
}
inline at::Tensor value_or_undefined(const OptionalTensor& tensor) {
  return tensor.has_value() ? *tensor : at::Tensor();
}

inline BatchRenormArguments arguments_of(double eps, double r_max, double d_max, int64_t group_size,
                                         int64_t grouping, int64_t activation) {
  return {
      eps, r_max, d_max, group_size, static_cast<Grouping>(grouping), static_cast<Activation>(activation)};
}

// The backward operator where there is no fused kernel.
BackwardTensors batch_renorm_backward_composite(
    const at::Tensor& grad_output, const at::Tensor& input, const OptionalTensor& weight,
    const OptionalTensor& bias, const at::Tensor& batch_mean, const OptionalTensor& batch_mean_low,
    const at::Tensor& batch_std, const OptionalTensor& r, const OptionalTensor& d, int64_t group_size,
    int64_t grouping, int64_t activation, bool frozen, std::array<bool, 3> output_mask);

at::Tensor batch_renorm_inference_composite(const at::Tensor& input, const OptionalTensor& weight,
                                            const OptionalTensor& bias, const at::Tensor& running_mean,
                                            const at::Tensor& running_std, int64_t activation);

}  // namespace renorm::ops
