// Tensors by name, and as plain memory.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace renorm::train {

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

// All parameters and buffers of a model by name, parameters first. A tensor that has several names appears
// once, under the first.
std::vector<NamedTensor> named_state(const torch::nn::Module& model);
std::vector<NamedTensor> named_parameters(const torch::nn::Module& model);

// A loop over plain memory costs a small tensor a fraction of one dispatched operation, and a model has a
// hundred small tensors.

constexpr int64_t kValuesPerTask = 32'768;  // minimum that at::parallel_for gives a thread

// Whether the values lie side by side in CPU memory, in any order.
inline bool is_dense(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_non_overlapping_and_dense();
}

// Whether two dense tensors of one shape hold their values in the same order. Strides of dimensions of size
// one are ignored: LibTorch sets them arbitrarily.
inline bool same_order(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  for (int64_t i = 0; i < a.dim(); ++i) {
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  }
  return true;
}

// Whether one loop over the memory of both, as values of type `type`, pairs corresponding values.
inline bool pairs_up(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  return a.scalar_type() == type && b.scalar_type() == type && is_dense(a) && is_dense(b) && same_order(a, b);
}

// Raw writes are invisible to autograd; a backward pass that needs the old values must fail.
inline void mark_written(const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }

// The place of the first value that is not finite, counted as if the tensor were flat; -1 if all are finite.
int64_t first_non_finite(const torch::Tensor& tensor);

}  // namespace renorm::train
