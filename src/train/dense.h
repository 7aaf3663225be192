// Tensors as plain memory. A loop over it costs a small tensor a fraction of what one dispatched operation
// does, and a model has a hundred of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace renorm::train {

constexpr int64_t kValuesPerTask = 32'768;  // what at::parallel_for gives a thread at least

// Whether the values lie side by side in the CPU's memory, in whatever order.
inline bool is_dense(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense();
}

// Whether two dense tensors of one shape hold their values in the same order. Strides of dimensions of size
// one say nothing about it, and LibTorch sets them as it likes.
inline bool same_order(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t i = 0; i < a.dim(); ++i) {
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

// Whether a loop over the memory of both as values of type `type` pairs the right ones.
inline bool pairs_up(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  return a.scalar_type() == type && b.scalar_type() == type && is_dense(a) && is_dense(b) && same_order(a, b);
}

// Raw writes are invisible to autograd; a backward pass that still needs the old values must fail.
inline void mark_written(const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }

}  // namespace renorm::train
