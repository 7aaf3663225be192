// Memory for outputs.
#pragma once

#include <ATen/ATen.h>

namespace renorm::ops {

// An uninitialised tensor with the shape, dtype and strides of `like`. A large one is advised to use huge
// pages: the allocator takes such memory fresh from the system each time, and touching it in small pages
// costs more than the normalization does.
at::Tensor empty_output(const at::Tensor& like);

}  // namespace renorm::ops
