// Absent arguments and tangents, for the files of autograd.
#pragma once

#include <ATen/ATen.h>

#include "ops/batch_renorm.h"

namespace renorm::ops {

// Null for an absent tensor.
inline const at::Tensor* pointer(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined() ? &*tensor : nullptr;
}

// Forward mode would need formulas of its own; without this error tangents would silently be zero.
template <class Pointers>
void check_no_tangent(const char* op, const Pointers& tensors) {
  for (const at::Tensor* tensor : tensors) {
    TORCH_CHECK(tensor == nullptr || !tensor->_fw_grad(/*level=*/0).defined(), op,
                ": forward-mode differentiation is not supported; use reverse mode");
  }
}

}  // namespace renorm::ops
