// The memory layouts that results keep.
#pragma once

#include <ATen/ATen.h>

namespace renorm::ops {

// Whether memory holds exactly [batch, positions ..., channels], for input of any rank.
bool is_channels_last(const at::Tensor& tensor);

// `tensor` itself where it is contiguous or channels last, else a copy that is: channels last where the
// strides have that order, as those of a slice of a channels-last tensor do. An operator's output and its
// gradient of the input have the strides of dense(input).
at::Tensor dense(const at::Tensor& tensor);

// `tensor` in the memory order of dense(like), by operations that autograd follows.
at::Tensor in_order_of(const at::Tensor& tensor, const at::Tensor& like);

}  // namespace renorm::ops
