// The operators for a divided group have no gradient of their own. A graph without it would be silently
// wrong, so a tensor that requires one or has a tangent is an error.
#include "ops/sync_batch_renorm.h"

#include <torch/library.h>

#include <initializer_list>

#include "ops/arguments.h"
#include "ops/autograd/tensors.h"

namespace renorm::ops {
namespace {

using Pointers = std::initializer_list<const at::Tensor*>;

// Null pointers are absent tensors.
void check_no_gradient(const char* op, Pointers tensors) {
  check_no_tangent(op, tensors);
  for (const at::Tensor* tensor : tensors) {
    TORCH_CHECK(
        tensor == nullptr || !at::GradMode::is_enabled() || !tensor->requires_grad(), op,
        ": is not differentiable, got a tensor that requires a gradient; call it without gradients, or "
        "use the layer, which can be differentiated once");
  }
}

void check_no_gradient(const ApplyArguments& a) {
  check_no_gradient(a.op, {&a.input, pointer(a.weight), pointer(a.bias)});
  check_no_tangent(
      a.op, Pointers{&a.batch_mean, pointer(a.batch_mean_low), &a.batch_std, pointer(a.r), pointer(a.d)});
}

at::Tensor statistics_autograd(const at::Tensor& input) {
  check_no_gradient(kStatisticsOp, {&input});
  at::AutoDispatchBelowADInplaceOrView below;
  return call_statistics(input);
}

MergeTensors merge_autograd(const MergeArguments& a) {
  check_no_gradient(kMergeOp, {&a.statistics});
  check_no_tangent(kMergeOp, Pointers{pointer(a.running_mean), pointer(a.running_std)});
  at::AutoDispatchBelowADInplaceOrView below;
  return call_merge(a);
}

at::Tensor apply_autograd(const ApplyArguments& a) {
  check_no_gradient(a);
  at::AutoDispatchBelowADInplaceOrView below;
  return call_apply(a);
}

at::Tensor backward_sums_autograd(const SumsArguments& a) {
  check_no_gradient(kSumsOp, {&a.grad_output});
  check_no_gradient(a.forward);
  at::AutoDispatchBelowADInplaceOrView below;
  return call_backward_sums(a);
}

at::Tensor backward_apply_autograd(const GradientArguments& a) {
  check_no_gradient(kGradientOp, {&a.grad_output, &a.sums, &a.count});
  check_no_gradient(a.forward);
  at::AutoDispatchBelowADInplaceOrView below;
  return call_backward_apply(a);
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, Autograd, m) {
  m.impl("batch_renorm_statistics", TORCH_FN(renorm::ops::statistics_autograd));
  m.impl("batch_renorm_merge", TORCH_FN(renorm::ops::flat_merge<renorm::ops::merge_autograd>));
  m.impl("batch_renorm_apply", TORCH_FN(renorm::ops::flat_apply<renorm::ops::apply_autograd>));
  m.impl("batch_renorm_backward_sums",
         TORCH_FN(renorm::ops::flat_backward_sums<renorm::ops::backward_sums_autograd>));
  m.impl("batch_renorm_backward_apply",
         TORCH_FN(renorm::ops::flat_backward_apply<renorm::ops::backward_apply_autograd>));
}
