// The operators on the CPU: check, lay out, split, call the kernel.
#include <ATen/Parallel.h>
#include <renorm/ops/batch_renorm.h>
#include <torch/library.h>

#include "kernels/kernels.h"
#include "ops/checks.h"
#include "ops/cpu/memory.h"
#include "ops/layout.h"
#include "ops/schema.h"

namespace renorm::ops {
namespace {

// Fewer values than this are not worth a second thread.
constexpr int64_t kParallelValues = 32768;

template <typename T>
struct KernelType {
  using type = T;
};
template <>
struct KernelType<at::BFloat16> {
  using type = kernels::BFloat16;
};

bool has_kernel(const at::Tensor& input) {
  const at::ScalarType type = input.scalar_type();
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16;
}

// Calls body with a value of the kernels' type for the dtype of `input`.
template <class Body>
void with_kernel_type(const at::Tensor& input, const Body& body) {
  switch (input.scalar_type()) {
    case at::kFloat:
      return body(float{});
    case at::kDouble:
      return body(double{});
    default:
      return body(kernels::BFloat16{});
  }
}

kernels::ParallelFor parallel_for(int64_t values) {
  if (values < kParallelValues) {
    return [](int64_t count, const kernels::Body& body) { body(0, count); };
  }
  return [](int64_t count, const kernels::Body& body) { at::parallel_for(0, count, 1, body); };
}

// The tensor as a kernel sees it. A tensor that has neither layout is copied.
struct LaidOut {
  at::Tensor tensor;
  kernels::Layout layout;
  kernels::Shape shape;
};

LaidOut lay_out(const at::Tensor& input) {
  const int64_t n = input.size(0);
  const int64_t c = input.size(1);
  const int64_t s = input.numel() == 0 ? 0 : input.numel() / (n * c);
  const at::Tensor tensor = dense(input);
  const bool last = is_channels_last(tensor) && (s == 1 || !tensor.is_contiguous());
  return {tensor, last ? kernels::Layout::kNsc : kernels::Layout::kNcs, {n, c, s}};
}

// `tensor` with the strides of `like`, copied if it has others.
at::Tensor with_strides_of(const at::Tensor& tensor, const at::Tensor& like) {
  if (tensor.strides() == like.strides() && tensor.scalar_type() == like.scalar_type()) return tensor;
  at::Tensor copy = at::empty_like(like);
  return copy.copy_(tensor);
}

kernels::Groups groups_of(int64_t n, int64_t group_size, Grouping grouping) {
  const int64_t size = group_size == 0 ? n : group_size;
  return grouping == Grouping::kStrided ? kernels::strided_groups(n, size)
                                        : kernels::contiguous_groups(n, size);
}

kernels::Activation kernel_activation(Activation activation) {
  return activation == Activation::kRelu ? kernels::Activation::kRelu : kernels::Activation::kNone;
}

template <typename T>
T* data(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

// A contiguous [channels] or [groups, channels] argument; keeps the copy alive as long as the pointer is
// used.
template <typename P>
class Parameter {
 public:
  explicit Parameter(const OptionalTensor& tensor) {
    if (tensor.has_value() && tensor->defined()) tensor_ = tensor->contiguous();
  }
  const P* get() const { return tensor_.defined() ? data<P>(tensor_) : nullptr; }

 private:
  at::Tensor tensor_;
};

ForwardTensors batch_renorm_cpu(const at::Tensor& input, const OptionalTensor& weight,
                                const OptionalTensor& bias, const OptionalTensor& running_mean,
                                const OptionalTensor& running_std, double eps, double r_max, double d_max,
                                int64_t group_size, int64_t grouping, int64_t activation) {
  const BatchRenormArguments arguments = arguments_of(eps, r_max, d_max, group_size, grouping, activation);
  check_batch_renorm(input, weight, bias, running_mean, running_std, arguments);
  if (!has_kernel(input)) {
    BatchRenormResult result =
        batch_renorm_composite(input, value_or_undefined(weight), value_or_undefined(bias),
                               value_or_undefined(running_mean), value_or_undefined(running_std), arguments);
    return {result.output, result.batch_mean, result.batch_mean_low, result.batch_std, result.r, result.d};
  }
  const LaidOut x = lay_out(input);
  const at::Tensor output = empty_output(x.tensor);
  const auto options = input.options().dtype(statistics_type(input.scalar_type()));
  const std::array<int64_t, 2> sizes{group_count(input, group_size), input.size(1)};
  const auto statistic = [&] { return at::empty(sizes, options); };
  ForwardTensors result{output, statistic(), statistic(), statistic(), statistic(), statistic()};
  if (input.numel() == 0) return result;
  with_kernel_type(input, [&](auto zero) {
    using T = decltype(zero);
    using P = kernels::Stat<T>;
    const Parameter<P> w(weight), b(bias), mean(running_mean), std(running_std);
    kernels::forward<T>(
        {x.layout, x.shape, groups_of(x.shape.n, group_size, arguments.grouping),
         kernel_activation(arguments.activation), eps, r_max, d_max, data<T>(x.tensor), w.get(), b.get(),
         mean.get(), std.get(), data<T>(output), data<P>(std::get<1>(result)), data<P>(std::get<2>(result)),
         data<P>(std::get<3>(result)), data<P>(std::get<4>(result)), data<P>(std::get<5>(result))},
        parallel_for(input.numel()));
  });
  return result;
}

BackwardTensors batch_renorm_backward_cpu(const at::Tensor& grad_output, const at::Tensor& input,
                                          const OptionalTensor& weight, const OptionalTensor& bias,
                                          const at::Tensor& batch_mean, const OptionalTensor& batch_mean_low,
                                          const at::Tensor& batch_std, const OptionalTensor& r,
                                          const OptionalTensor& d, int64_t group_size, int64_t grouping,
                                          int64_t activation, bool frozen, std::array<bool, 3> output_mask) {
  const BatchRenormArguments arguments = arguments_of(1.0, 1.0, 0.0, group_size, grouping, activation);
  check_batch_renorm_backward(grad_output, input, weight, bias, batch_mean, batch_mean_low, batch_std, r, d,
                              arguments);
  if (!has_kernel(input)) {
    return batch_renorm_backward_composite(grad_output, input, weight, bias, batch_mean, batch_mean_low,
                                           batch_std, r, d, group_size, grouping, activation, frozen,
                                           output_mask);
  }
  const LaidOut x = lay_out(input);
  const at::Tensor dy = with_strides_of(grad_output, x.tensor);
  const auto options = input.options().dtype(statistics_type(input.scalar_type()));
  const at::Tensor dx = output_mask[0] ? empty_output(x.tensor) : at::Tensor();
  const at::Tensor dweight = output_mask[1] ? at::empty({x.shape.c}, options) : at::Tensor();
  const at::Tensor dbias = output_mask[2] ? at::empty({x.shape.c}, options) : at::Tensor();
  with_kernel_type(input, [&](auto zero) {
    using T = decltype(zero);
    using P = kernels::Stat<T>;
    const Parameter<P> w(weight), b(bias), mean(batch_mean), low(batch_mean_low), std(batch_std), factor(r),
        shift(d);
    const auto groups = groups_of(x.shape.n, group_size, arguments.grouping);
    kernels::backward<T>(
        {x.layout, x.shape, groups, kernel_activation(arguments.activation), frozen, data<T>(x.tensor),
         data<T>(dy), w.get(), b.get(), mean.get(), low.get(), std.get(), factor.get(), shift.get(),
         dx.defined() ? data<T>(dx) : nullptr, dweight.defined() ? data<P>(dweight) : nullptr,
         dbias.defined() ? data<P>(dbias) : nullptr},
        parallel_for(input.numel()));
  });
  return {dx, dweight, dbias};
}

at::Tensor batch_renorm_inference_cpu(const at::Tensor& input, const OptionalTensor& weight,
                                      const OptionalTensor& bias, const at::Tensor& running_mean,
                                      const at::Tensor& running_std, int64_t activation) {
  check_batch_renorm_inference(input, weight, bias, running_mean, running_std, activation);
  if (!has_kernel(input)) {
    return batch_renorm_inference_composite(input, weight, bias, running_mean, running_std, activation);
  }
  const LaidOut x = lay_out(input);
  const at::Tensor output = empty_output(x.tensor);
  with_kernel_type(input, [&](auto zero) {
    using T = decltype(zero);
    using P = kernels::Stat<T>;
    const Parameter<P> w(weight), b(bias), mean(running_mean), std(running_std);
    kernels::inference<T>({x.layout, x.shape, kernel_activation(static_cast<Activation>(activation)),
                           data<T>(x.tensor), w.get(), b.get(), mean.get(), std.get(), data<T>(output)},
                          parallel_for(input.numel()));
  });
  return output;
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, CPU, m) {
  m.impl("batch_renorm", TORCH_FN(renorm::ops::batch_renorm_cpu));
  m.impl("batch_renorm_backward", TORCH_FN(renorm::ops::batch_renorm_backward_cpu));
  m.impl("batch_renorm_inference", TORCH_FN(renorm::ops::batch_renorm_inference_cpu));
}
