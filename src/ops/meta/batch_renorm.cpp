// Tensors without data that have the shape, dtype and strides of the operators' results.
#include "ops/batch_renorm.h"

#include <torch/library.h>

#include "ops/arguments.h"

namespace renorm::ops {
namespace {

ForwardTensors batch_renorm_meta(const at::Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, const OptionalTensor& running_mean,
                                 const OptionalTensor& running_std, const BatchRenormArguments& arguments) {
  check_batch_renorm(input, weight, bias, running_mean, running_std, arguments);
  const auto options = input.options().dtype(statistics_type(input.scalar_type()));
  const std::array<int64_t, 2> sizes{group_count(input, arguments.group_size), input.size(1)};
  const auto statistic = [&] { return at::empty(sizes, options); };
  return {at::empty_like(dense(input)), statistic(), statistic(), statistic(), statistic(), statistic()};
}

BackwardTensors batch_renorm_backward_meta(const BackwardArguments& arguments) {
  check_batch_renorm_backward(arguments);
  const at::Tensor& input = arguments.input;
  const auto& mask = arguments.output_mask;
  const auto per_channel = [&] { return at::empty({input.size(1)}, arguments.batch_std.options()); };
  return {mask[0] ? at::empty_like(dense(input)) : at::Tensor(), mask[1] ? per_channel() : at::Tensor(),
          mask[2] ? per_channel() : at::Tensor()};
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
  m.impl("batch_renorm", TORCH_FN(renorm::ops::flat_forward<renorm::ops::batch_renorm_meta>));
  m.impl("batch_renorm_backward",
         TORCH_FN(renorm::ops::flat_backward<renorm::ops::batch_renorm_backward_meta>));
  m.impl("batch_renorm_inference", TORCH_FN(renorm::ops::batch_renorm_inference_meta));
}
