// The operators on the CPU: check, lay out, split, call the kernel.
#include "ops/batch_renorm.h"

#include <renorm/ops/batch_renorm.h>
#include <torch/library.h>

#include <cstdint>

#include "kernels/kernels.h"
#include "ops/arguments.h"
#include "ops/cpu/tensors.h"

namespace renorm::ops {
namespace {

kernels::Groups groups_of(int64_t n, int64_t group_size, Grouping grouping) {
  const int64_t size = group_size == 0 ? n : group_size;
  return grouping == Grouping::kStrided ? kernels::strided_groups(n, size)
                                        : kernels::contiguous_groups(n, size);
}

// `optional` as kernels read it: undefined if absent, else in the strides of `like`.
at::Tensor operand(const OptionalTensor& optional, const at::Tensor& like) {
  return optional.has_value() ? with_strides_of(*optional, like) : at::Tensor();
}

ForwardTensors batch_renorm_cpu(const ForwardArguments& a) {
  check_batch_renorm(a);
  if (!has_kernel(a.input)) return batch_renorm_forward_composite(a);
  const KernelInput x = kernel_input(a.input);
  const at::Tensor residual = operand(a.residual, x.tensor);
  const at::Tensor output = empty_output(x.tensor);
  const auto options = a.input.options().dtype(statistics_type(a.input.scalar_type()));
  const std::array<int64_t, 2> sizes{group_count(a.input, a.group_size), a.input.size(1)};
  const auto statistic = [&] { return at::empty(sizes, options); };
  const bool masked = has_mask(a) && a.input.numel() > 0;
  const int64_t mask_size = masked ? kernels::mask_bytes(a.input.numel()) + 1 : 0;
  const at::Tensor mask = at::empty({mask_size}, a.input.options().dtype(at::kByte));
  if (masked) data<uint8_t>(mask)[mask_size - 1] = dense_is_channels_last(a.input) ? 1 : 0;
  ForwardTensors result{output, statistic(), statistic(), statistic(), statistic(), statistic(), mask};
  if (a.input.numel() == 0) return result;
  const ClipLimits limits = limits_of(a.limits);
  with_kernel_type(a.input, [&](auto zero) {
    using T = decltype(zero);
    using P = kernels::Stat<T>;
    const Parameter<P> w(a.weight), b(a.bias), mean(a.running_mean), std(a.running_std);
    kernels::forward<T>({x.layout,
                         x.shape,
                         groups_of(x.shape.n, a.group_size, a.grouping),
                         kernel_activation(a.activation),
                         a.eps,
                         limits.r_max,
                         limits.d_max,
                         data<T>(x.tensor),
                         w.get(),
                         b.get(),
                         mean.get(),
                         std.get(),
                         data<T>(output),
                         data<P>(std::get<1>(result)),
                         data<P>(std::get<2>(result)),
                         data<P>(std::get<3>(result)),
                         data<P>(std::get<4>(result)),
                         data<P>(std::get<5>(result)),
                         data_or_null<T>(residual),
                         masked ? data<uint8_t>(mask) : nullptr},
                        parallel_for(a.input.numel()));
  });
  return result;
}

// Whether the bits of the mask are in another order than the values of the input.
bool has_mask_in_other_order(const BackwardArguments& a) {
  return a.mask.has_value() && a.mask->defined() && a.mask->numel() > 0 &&
         mask_is_channels_last(*a.mask) != dense_is_channels_last(a.input);
}

// A mask is in the order of the input.
BackwardTensors backward_by_kernel(const BackwardArguments& a) {
  const KernelInput x = kernel_input(a.input);
  const at::Tensor dy = with_strides_of(a.grad_output, x.tensor);
  const Parameter<uint8_t> mask(a.mask);
  const auto options = a.input.options().dtype(statistics_type(a.input.scalar_type()));
  const auto like_input = [&](bool wanted) { return wanted ? empty_output(x.tensor) : at::Tensor(); };
  const auto per_channel = [&](bool wanted) {
    return wanted ? at::empty({x.shape.c}, options) : at::Tensor();
  };
  const BackwardTensors result{like_input(a.output_mask[0]), per_channel(a.output_mask[1]),
                               per_channel(a.output_mask[2]), like_input(a.output_mask[3])};
  with_kernel_type(a.input, [&](auto zero) {
    using T = decltype(zero);
    using P = kernels::Stat<T>;
    const Parameter<P> weight(a.weight), bias(a.bias), mean(a.batch_mean), low(a.batch_mean_low),
        std(a.batch_std), r(a.r), d(a.d);
    kernels::backward<T>(
        {x.layout, x.shape, groups_of(x.shape.n, a.group_size, a.grouping), kernel_activation(a.activation),
         a.frozen, data<T>(x.tensor), data<T>(dy), weight.get(), bias.get(), mean.get(), low.get(), std.get(),
         r.get(), d.get(), data_or_null<T>(std::get<0>(result)), data_or_null<P>(std::get<1>(result)),
         data_or_null<P>(std::get<2>(result)), mask.get(), data_or_null<T>(std::get<3>(result))},
        parallel_for(a.input.numel()));
  });
  return result;
}

BackwardTensors batch_renorm_backward_cpu(const BackwardArguments& a) {
  check_batch_renorm_backward(a);
  if (!has_kernel(a.input)) return batch_renorm_backward_composite(a);
  if (!has_mask_in_other_order(a)) return backward_by_kernel(a);
  const at::Tensor input = in_order(a.input, mask_is_channels_last(*a.mask));
  auto [dinput, dweight, dbias, dresidual] = backward_by_kernel(
      {a.grad_output, input, a.weight, a.bias, a.mask, a.batch_mean, a.batch_mean_low, a.batch_std, a.r, a.d,
       a.group_size, a.grouping, a.activation, a.frozen, a.output_mask});
  const auto back = [&](const at::Tensor& gradient) {
    return gradient.defined() ? in_order_of(gradient, a.input) : gradient;
  };
  return {back(dinput), dweight, dbias, back(dresidual)};
}

at::Tensor batch_renorm_inference_cpu(const InferenceArguments& a) {
  check_batch_renorm_inference(a);
  if (!has_kernel(a.input)) return batch_renorm_inference_composite(a);
  const KernelInput x = kernel_input(a.input);
  const at::Tensor residual = operand(a.residual, x.tensor);
  const at::Tensor output = empty_output(x.tensor);
  with_kernel_type(a.input, [&](auto zero) {
    using T = decltype(zero);
    using P = kernels::Stat<T>;
    const Parameter<P> w(a.weight), b(a.bias), mean(a.running_mean), std(a.running_std);
    kernels::inference<T>({x.layout, x.shape, kernel_activation(a.activation), data<T>(x.tensor), w.get(),
                           b.get(), mean.get(), std.get(), data<T>(output), data_or_null<T>(residual)},
                          parallel_for(a.input.numel()));
  });
  return output;
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, CPU, m) {
  m.impl("batch_renorm", TORCH_FN(renorm::ops::flat_forward<renorm::ops::batch_renorm_cpu>));
  m.impl("batch_renorm_step", TORCH_FN(renorm::ops::flat_step<renorm::ops::batch_renorm_cpu>));
  m.impl("batch_renorm_backward",
         TORCH_FN(renorm::ops::flat_backward<renorm::ops::batch_renorm_backward_cpu>));
  m.impl("batch_renorm_inference",
         TORCH_FN(renorm::ops::flat_inference<renorm::ops::batch_renorm_inference_cpu>));
}
