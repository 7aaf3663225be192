// The operators on the CPU: check, lay out, split, call the kernel.
#include "ops/batch_renorm.h"

#include <ATen/Parallel.h>
#include <renorm/ops/batch_renorm.h>
#include <torch/library.h>

#include <cstdint>

#include "kernels/kernels.h"
#include "ops/arguments.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace renorm::ops {
namespace {

// Fewer values than this are not worth a second thread.
constexpr int64_t kParallelValues = 32768;

// glibc maps allocations of this size and above anew each time.
constexpr size_t kHugeBytes = size_t{32} << 20;
constexpr uintptr_t kPage = 4096;

bool has_kernel(const at::Tensor& input) {
  const at::ScalarType type = input.scalar_type();
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16;
}

// Calls body with a value of the kernel type for the dtype of `input`.
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

// A tensor in one of the kernels' layouts: a copy if the original has neither.
struct KernelInput {
  at::Tensor tensor;
  kernels::Layout layout;
  kernels::Shape shape;
};

KernelInput kernel_input(const at::Tensor& input) {
  const int64_t n = input.size(0);
  const int64_t c = input.size(1);
  const int64_t s = input.numel() == 0 ? 0 : input.numel() / (n * c);
  const at::Tensor tensor = dense(input);
  const bool last = is_channels_last(tensor) && (s == 1 || !tensor.is_contiguous());
  return {tensor, last ? kernels::Layout::kNsc : kernels::Layout::kNcs, {n, c, s}};
}

// `tensor` in the strides and dtype of `like`: a copy if its own differ.
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

// Owns a contiguous [channels] or [groups, channels] argument, a copy if needed. get() is null if it is
// absent.
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

void advise_huge_pages(void* data, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const uintptr_t skipped = (kPage - reinterpret_cast<uintptr_t>(data) % kPage) % kPage;
  const uintptr_t whole_pages = (bytes - skipped) / kPage * kPage;
  // Advice only: a system that ignores it loses nothing.
  (void)madvise(static_cast<char*>(data) + skipped, whole_pages, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

// An uninitialized tensor with the shape, dtype and strides of `like`. A large one uses huge pages: the
// allocator takes its memory fresh from the system, and touching that in small pages costs more than the
// normalization does.
at::Tensor empty_output(const at::Tensor& like) {
  at::Tensor output = at::empty_like(like);
  if (output.nbytes() >= kHugeBytes) advise_huge_pages(output.data_ptr(), output.nbytes());
  return output;
}

ForwardTensors batch_renorm_cpu(const at::Tensor& input, const OptionalTensor& weight,
                                const OptionalTensor& bias, const OptionalTensor& running_mean,
                                const OptionalTensor& running_std, const BatchRenormArguments& arguments) {
  check_batch_renorm(input, weight, bias, running_mean, running_std, arguments);
  if (!has_kernel(input)) {
    return batch_renorm_forward_composite(input, weight, bias, running_mean, running_std, arguments);
  }
  const KernelInput x = kernel_input(input);
  const at::Tensor output = empty_output(x.tensor);
  const auto options = input.options().dtype(statistics_type(input.scalar_type()));
  const std::array<int64_t, 2> sizes{group_count(input, arguments.group_size), input.size(1)};
  const auto statistic = [&] { return at::empty(sizes, options); };
  ForwardTensors result{output, statistic(), statistic(), statistic(), statistic(), statistic()};
  if (input.numel() == 0) return result;
  with_kernel_type(input, [&](auto zero) {
    using T = decltype(zero);
    using P = kernels::Stat<T>;
    const Parameter<P> w(weight), b(bias), mean(running_mean), std(running_std);
    kernels::forward<T>(
        {x.layout, x.shape, groups_of(x.shape.n, arguments.group_size, arguments.grouping),
         kernel_activation(arguments.activation), arguments.eps, arguments.r_max, arguments.d_max,
         data<T>(x.tensor), w.get(), b.get(), mean.get(), std.get(), data<T>(output),
         data<P>(std::get<1>(result)), data<P>(std::get<2>(result)), data<P>(std::get<3>(result)),
         data<P>(std::get<4>(result)), data<P>(std::get<5>(result))},
        parallel_for(input.numel()));
  });
  return result;
}

BackwardTensors batch_renorm_backward_cpu(const BackwardArguments& a) {
  check_batch_renorm_backward(a);
  if (!has_kernel(a.input)) return batch_renorm_backward_composite(a);
  const KernelInput x = kernel_input(a.input);
  const at::Tensor dy = with_strides_of(a.grad_output, x.tensor);
  const auto options = a.input.options().dtype(statistics_type(a.input.scalar_type()));
  const at::Tensor dx = a.output_mask[0] ? empty_output(x.tensor) : at::Tensor();
  const at::Tensor dweight = a.output_mask[1] ? at::empty({x.shape.c}, options) : at::Tensor();
  const at::Tensor dbias = a.output_mask[2] ? at::empty({x.shape.c}, options) : at::Tensor();
  with_kernel_type(a.input, [&](auto zero) {
    using T = decltype(zero);
    using P = kernels::Stat<T>;
    const Parameter<P> weight(a.weight), bias(a.bias), mean(a.batch_mean), low(a.batch_mean_low),
        std(a.batch_std), r(a.r), d(a.d);
    kernels::backward<T>(
        {x.layout, x.shape, groups_of(x.shape.n, a.group_size, a.grouping), kernel_activation(a.activation),
         a.frozen, data<T>(x.tensor), data<T>(dy), weight.get(), bias.get(), mean.get(), low.get(), std.get(),
         r.get(), d.get(), dx.defined() ? data<T>(dx) : nullptr,
         dweight.defined() ? data<P>(dweight) : nullptr, dbias.defined() ? data<P>(dbias) : nullptr},
        parallel_for(a.input.numel()));
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
  const KernelInput x = kernel_input(input);
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
  m.impl("batch_renorm", TORCH_FN(renorm::ops::flat_forward<renorm::ops::batch_renorm_cpu>));
  m.impl("batch_renorm_backward",
         TORCH_FN(renorm::ops::flat_backward<renorm::ops::batch_renorm_backward_cpu>));
  m.impl("batch_renorm_inference", TORCH_FN(renorm::ops::batch_renorm_inference_cpu));
}
