#include "ops/layout.h"

namespace renorm::ops {

bool is_channels_last(const at::Tensor& tensor) {
  int64_t expected = tensor.size(1);
  if (expected != 1 && tensor.stride(1) != 1) return false;
  for (int64_t dim = tensor.dim() - 1; dim >= 2; --dim) {
    if (tensor.size(dim) != 1 && tensor.stride(dim) != expected) return false;
    expected *= tensor.size(dim);
  }
  return tensor.size(0) == 1 || tensor.stride(0) == expected;
}

at::Tensor dense(const at::Tensor& tensor) {
  return is_channels_last(tensor) ? tensor : tensor.contiguous(tensor.suggest_memory_format());
}

at::Tensor in_order_of(const at::Tensor& tensor, const at::Tensor& like) {
  const bool channels_last = like.suggest_memory_format() != at::MemoryFormat::Contiguous ||
                             (is_channels_last(like) && !like.is_contiguous());
  return channels_last ? tensor.movedim(1, -1).contiguous().movedim(-1, 1) : tensor.contiguous();
}

}  // namespace renorm::ops
