// Tensors as the kernels take them: layouts, pointers, threads.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "kernels/problem.h"
#include "ops/batch_renorm.h"

namespace renorm::ops {

// Whether there is a fused kernel for the dtype of `input`.
bool has_kernel(const at::Tensor& input);

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

// LibTorch's threads, or this thread alone if there are few values.
kernels::ParallelFor parallel_for(int64_t values);

// A tensor in one of the kernels' layouts: a copy if the original has neither.
struct KernelInput {
  at::Tensor tensor;
  kernels::Layout layout;
  kernels::Shape shape;
};
KernelInput kernel_input(const at::Tensor& input);

// `tensor` in the strides and dtype of `like`: a copy if its own differ.
at::Tensor with_strides_of(const at::Tensor& tensor, const at::Tensor& like);

// An uninitialized tensor with the shape, dtype and strides of `like`. A large one uses huge pages: the
// allocator takes its memory fresh from the system, and touching that in small pages costs more than the
// normalization does.
at::Tensor empty_output(const at::Tensor& like);

inline kernels::Activation kernel_activation(Activation activation) {
  return activation == Activation::kRelu ? kernels::Activation::kRelu : kernels::Activation::kNone;
}

template <typename T>
T* data(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

template <typename T>
T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? data<T>(tensor) : nullptr;
}

// Owns a contiguous argument that is not of the input's shape, a copy if needed. get() is null if it is
// absent or empty.
template <typename P>
class Parameter {
 public:
  explicit Parameter(const OptionalTensor& tensor) {
    if (tensor.has_value() && tensor->defined() && tensor->numel() > 0) tensor_ = tensor->contiguous();
  }
  const P* get() const { return tensor_.defined() ? data<P>(tensor_) : nullptr; }

 private:
  at::Tensor tensor_;
};

inline ClipLimits limits_of(const ClipSource& limits) {
  return limits.clip.at(limits.step.has_value() ? *limits.step->data_ptr<int64_t>() : 0);
}

}  // namespace renorm::ops
