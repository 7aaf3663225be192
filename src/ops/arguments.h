// Shared by all implementations of the operators: checks of the arguments, and the groups, dtypes and memory
// layouts that follow from them.
#pragma once

#include <ATen/ATen.h>
#include <renorm/ops/batch_renorm.h>

#include "ops/batch_renorm.h"
#include "ops/sync_batch_renorm.h"

namespace renorm::ops {

// One check per operator; every implementation calls it first. Sizes may be symbolic.
void check_batch_renorm(const ForwardArguments& arguments);
void check_batch_renorm_backward(const BackwardArguments& arguments);
void check_batch_renorm_inference(const InferenceArguments& arguments);
void check_move_averages(const at::Tensor& running_mean, const at::Tensor& running_std,
                         const at::Tensor& step, const at::Tensor& batch_mean, const at::Tensor& batch_std,
                         const Optional<double>& momentum);
void check_statistics_arguments(const at::Tensor& input);
void check_merge(const MergeArguments& arguments);
void check_apply(const ApplyArguments& arguments);
void check_backward_sums(const SumsArguments& arguments);
void check_backward_apply(const GradientArguments& arguments);

// No tensor may have a tangent; null for one that is absent. Forward mode would need formulas of its own, and
// without this error tangents would silently be zero.
template <class Pointers>
void check_no_tangent(const char* op, const Pointers& tensors) {
  for (const at::Tensor* tensor : tensors) {
    TORCH_CHECK(tensor == nullptr || !tensor->_fw_grad(/*level=*/0).defined(), op,
                ": forward-mode differentiation is not supported; use reverse mode");
  }
}

// Whether the values are in the host's memory: tensors of torch.func and of tracing only report a device.
bool is_readable(const at::Tensor& tensor);

// Whether the forward returns a mask: the backward cannot recompute it without the residual.
bool has_mask(const ForwardArguments& arguments);

// The number of groups of a checked batch: 0 for an empty input.
c10::SymInt sym_group_count(const at::Tensor& input, int64_t group_size);
int64_t group_count(const at::Tensor& input, int64_t group_size);

// The dtype of parameters and statistics for input of dtype `input`: double for double, else float.
at::ScalarType statistics_type(at::ScalarType input);

// Whether memory holds exactly [batch, positions ..., channels], for input of any rank.
bool is_channels_last(const at::Tensor& tensor);

// `tensor` itself if it is contiguous or channels last, else a copy that is. The copy is channels last if the
// strides have that order, as in a slice of a channels-last tensor. An operator's output and its gradient of
// the input have the strides of dense(input).
at::Tensor dense(const at::Tensor& tensor);

// `tensor` in the memory order of dense(like). Autograd can differentiate it.
at::Tensor in_order_of(const at::Tensor& tensor, const at::Tensor& like);

// Whether dense(tensor) is channels last in memory, and not contiguous as well.
bool dense_is_channels_last(const at::Tensor& tensor);

// `tensor` in the given memory order.
at::Tensor in_order(const at::Tensor& tensor, bool channels_last);

// The bytes of a mask of `values` values: the bits, seven zeros (see kernels::mask_bytes), and one for the
// memory order of the values that the bits belong to. It is not read from the strides of the backward's
// input, because compilers and hooks of saved tensors change them.
inline c10::SymInt sym_mask_size(const c10::SymInt& values) { return (values + 7) / 8 + 8; }

// 1 for channels last. Only the fused kernels write it, and only they read it.
bool mask_is_channels_last(const at::Tensor& mask);

}  // namespace renorm::ops
