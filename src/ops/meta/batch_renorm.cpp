// Shapes without data: what the operators would return.
#include <torch/library.h>

#include "ops/checks.h"
#include "ops/layout.h"
#include "ops/schema.h"

namespace renorm::ops {
namespace {

ForwardTensors batch_renorm_meta(const at::Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, const OptionalTensor& running_mean,
                                 const OptionalTensor& running_std, double eps, double r_max, double d_max,
                                 int64_t group_size, int64_t grouping, int64_t activation) {
  check_batch_renorm(input, weight, bias, running_mean, running_std,
                     arguments_of(eps, r_max, d_max, group_size, grouping, activation));
  const auto options = input.options().dtype(statistics_type(input.scalar_type()));
  const auto statistic = [&] { return at::empty({group_count(input, group_size), input.size(1)}, options); };
  return {at::empty_like(dense(input)), statistic(), statistic(), statistic(), statistic(), statistic()};
}

BackwardTensors batch_renorm_backward_meta(const at::Tensor& grad_output, const at::Tensor& input,
                                           const OptionalTensor& weight, const OptionalTensor& bias,
                                           const at::Tensor& batch_mean, const OptionalTensor& batch_mean_low,
                                           const at::Tensor& batch_std, const OptionalTensor& r,
                                           const OptionalTensor& d, int64_t group_size, int64_t grouping,
                                           int64_t activation, bool /*frozen*/,
                                           std::array<bool, 3> output_mask) {
  check_batch_renorm_backward(grad_output, input, weight, bias, batch_mean, batch_mean_low, batch_std, r, d,
                              arguments_of(1.0, 1.0, 0.0, group_size, grouping, activation));
  const auto channels = [&] { return at::empty({input.size(1)}, batch_std.options()); };
  return {output_mask[0] ? at::empty_like(dense(input)) : at::Tensor(),
          output_mask[1] ? channels() : at::Tensor(), output_mask[2] ? channels() : at::Tensor()};
}

at::Tensor batch_renorm_inference_meta(const at::Tensor& input, const OptionalTensor& weight,
                                       const OptionalTensor& bias, const at::Tensor& running_mean,
                                       const at::Tensor& running_std, int64_t activation) {
  check_batch_renorm_inference(input, weight, bias, running_mean, running_std, activation);
  return at::empty_like(dense(input));
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, Meta, m) {
  m.impl("batch_renorm", TORCH_FN(renorm::ops::batch_renorm_meta));
  m.impl("batch_renorm_backward", TORCH_FN(renorm::ops::batch_renorm_backward_meta));
  m.impl("batch_renorm_inference", TORCH_FN(renorm::ops::batch_renorm_inference_meta));
}
