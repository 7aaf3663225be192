// Absent arguments, for the files of autograd.
#pragma once

#include <ATen/ATen.h>

#include "ops/batch_renorm.h"

namespace renorm::ops {

// Null for an absent tensor.
inline const at::Tensor* pointer(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined() ? &*tensor : nullptr;
}

}  // namespace renorm::ops
