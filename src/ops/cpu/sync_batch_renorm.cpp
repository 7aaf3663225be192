// The operators for a divided group on the CPU: check, lay out, split, call the kernel.
#include "ops/sync_batch_renorm.h"

#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/parts.h"
#include "ops/arguments.h"
#include "ops/cpu/tensors.h"

namespace renorm::ops {
namespace {

at::Tensor statistics_cpu(const at::Tensor& input) {
  check_statistics_arguments(input);
  if (!has_kernel(input)) return statistics_composite(input);
  const int64_t channels = input.size(1);
  const at::Tensor statistics =
      at::zeros({kernels::statistics_size(channels)}, input.options().dtype(at::kDouble));
  if (input.numel() == 0) return statistics;
  const KernelInput x = kernel_input(input);
  double* row = data<double>(statistics);
  row[0] = static_cast<double>(x.shape.n * x.shape.s);
  with_kernel_type(input, [&](auto zero) {
    using T = decltype(zero);
    kernels::statistics<T>({x.layout, x.shape, data<T>(x.tensor), row + 1, row + 1 + channels},
                           parallel_for(input.numel()));
  });
  return statistics;
}

MergeTensors merge_cpu(const MergeArguments& a) {
  check_merge(a);
  if (composite_is_forced()) return merge_composite(a);
  const at::Tensor rows = a.statistics.contiguous();
  const int64_t channels = (rows.size(1) - 1) / 2;
  const auto statistic = [&] { return at::empty({1, channels}, rows.options().dtype(a.dtype)); };
  MergeTensors result{statistic(), statistic(), statistic(),
                      statistic(), statistic(), at::empty({}, rows.options())};
  const ClipLimits limits = limits_of(a.limits);
  AT_DISPATCH_FLOATING_TYPES(a.dtype, kMergeOp, [&] {
    using P = scalar_t;
    const Parameter<P> mean(a.running_mean), std(a.running_std);
    *data<double>(std::get<5>(result)) = kernels::merge<P>(
        {data<double>(rows), rows.size(0), channels, a.eps, limits.r_max, limits.d_max, mean.get(), std.get(),
         data<P>(std::get<0>(result)), data<P>(std::get<1>(result)), data<P>(std::get<2>(result)),
         data<P>(std::get<3>(result)), data<P>(std::get<4>(result))});
  });
  return result;
}

at::Tensor apply_cpu(const ApplyArguments& a) {
  check_apply(a);
  if (!has_kernel(a.input)) return apply_composite(a);
  const KernelInput x = kernel_input(a.input);
  const at::Tensor output = empty_output(x.tensor);
  with_kernel_type(a.input, [&](auto zero) {
    using T = decltype(zero);
    using P = kernels::Stat<T>;
    const Parameter<P> weight(a.weight), bias(a.bias), mean(a.batch_mean), low(a.batch_mean_low),
        std(a.batch_std), r(a.r), d(a.d);
    kernels::apply<T>({x.layout, x.shape, kernel_activation(a.activation), data<T>(x.tensor), weight.get(),
                       bias.get(), mean.get(), low.get(), std.get(), r.get(), d.get(), data<T>(output)},
                      parallel_for(a.input.numel()));
  });
  return output;
}

// Calls body(problem) with the problem of the backward pass in the kernel type.
template <class Body>
void with_backward_problem(const at::Tensor& grad_output, const ApplyArguments& a, const KernelInput& x,
                           const Body& body) {
  const at::Tensor dy = with_strides_of(grad_output, x.tensor);
  with_kernel_type(a.input, [&](auto zero) {
    using T = decltype(zero);
    using P = kernels::Stat<T>;
    const Parameter<P> weight(a.weight), bias(a.bias), mean(a.batch_mean), low(a.batch_mean_low),
        std(a.batch_std), r(a.r), d(a.d);
    body(kernels::ApplyBackward<T>{x.layout, x.shape, kernel_activation(a.activation), data<T>(x.tensor),
                                   data<T>(dy), weight.get(), bias.get(), mean.get(), low.get(), std.get(),
                                   r.get(), d.get()});
  });
}

at::Tensor backward_sums_cpu(const SumsArguments& a) {
  check_backward_sums(a);
  const at::Tensor& input = a.forward.input;
  if (!has_kernel(input)) return backward_sums_composite(a);
  const int64_t channels = input.size(1);
  const at::Tensor sums = at::empty({2, channels}, input.options().dtype(at::kDouble));
  with_backward_problem(a.grad_output, a.forward, kernel_input(input), [&](const auto& problem) {
    double* row = data<double>(sums);
    kernels::backward_sums(problem, {row, row + channels}, parallel_for(input.numel()));
  });
  return sums;
}

at::Tensor backward_apply_cpu(const GradientArguments& a) {
  check_backward_apply(a);
  const at::Tensor& input = a.forward.input;
  if (!has_kernel(input)) return backward_apply_composite(a);
  const KernelInput x = kernel_input(input);
  const at::Tensor dinput = empty_output(x.tensor);
  const at::Tensor sums = a.sums.contiguous();
  with_backward_problem(a.grad_output, a.forward, x, [&](const auto& problem) {
    const double* row = data<double>(sums);
    kernels::backward_apply(
        problem, {row, row + x.shape.c}, *data<double>(a.count),
        static_cast<std::remove_const_t<std::remove_pointer_t<decltype(problem.x)>>*>(dinput.data_ptr()),
        parallel_for(input.numel()));
  });
  return dinput;
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, CPU, m) {
  m.impl("batch_renorm_statistics", TORCH_FN(renorm::ops::statistics_cpu));
  m.impl("batch_renorm_merge", TORCH_FN(renorm::ops::flat_merge<renorm::ops::merge_cpu>));
  m.impl("batch_renorm_apply", TORCH_FN(renorm::ops::flat_apply<renorm::ops::apply_cpu>));
  m.impl("batch_renorm_backward_sums",
         TORCH_FN(renorm::ops::flat_backward_sums<renorm::ops::backward_sums_cpu>));
  m.impl("batch_renorm_backward_apply",
         TORCH_FN(renorm::ops::flat_backward_apply<renorm::ops::backward_apply_cpu>));
}
