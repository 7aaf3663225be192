// What files with schemas share: the tags of operators, and calls through the dispatcher.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/version.h>

// Without needs_fixed_stride_order Inductor copies channels-last tensors to contiguous ones and back.
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
#define RENORM_TAGS \
  , { at::Tag::pt2_compliant_tag, at::Tag::needs_fixed_stride_order }
#else
#define RENORM_TAGS
#endif

namespace renorm::ops {

// The registered operator of that name, as a function of this type.
template <typename Function>
auto typed(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

}  // namespace renorm::ops
