// Tensors without data that have the shape, dtype and strides of the results for a divided group.
#include "ops/sync_batch_renorm.h"

#include <torch/library.h>

#include "ops/arguments.h"

namespace renorm::ops {
namespace {

at::Tensor statistics_meta(const at::Tensor& input) {
  check_statistics_arguments(input);
  return at::empty_symint({input.sym_size(1) * 2 + 1}, input.options().dtype(at::kDouble));
}

MergeTensors merge_meta(const MergeArguments& a) {
  check_merge(a);
  const c10::SymInt channels = (a.statistics.sym_size(1) - 1) / 2;
  const auto options = a.statistics.options();
  const auto statistic = [&] { return at::empty_symint({c10::SymInt(1), channels}, options.dtype(a.dtype)); };
  return {statistic(), statistic(), statistic(), statistic(), statistic(), at::empty({}, options)};
}

at::Tensor apply_meta(const ApplyArguments& a) {
  check_apply(a);
  return at::empty_like(dense(a.input));
}

at::Tensor backward_sums_meta(const SumsArguments& a) {
  check_backward_sums(a);
  const at::Tensor& input = a.forward.input;
  return at::empty_symint({c10::SymInt(2), input.sym_size(1)}, input.options().dtype(at::kDouble));
}

at::Tensor backward_apply_meta(const GradientArguments& a) {
  check_backward_apply(a);
  return at::empty_like(dense(a.forward.input));
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, Meta, m) {
  m.impl("batch_renorm_statistics", TORCH_FN(renorm::ops::statistics_meta));
  m.impl("batch_renorm_merge", TORCH_FN(renorm::ops::flat_merge<renorm::ops::merge_meta>));
  m.impl("batch_renorm_apply", TORCH_FN(renorm::ops::flat_apply<renorm::ops::apply_meta>));
  m.impl("batch_renorm_backward_sums",
         TORCH_FN(renorm::ops::flat_backward_sums<renorm::ops::backward_sums_meta>));
  m.impl("batch_renorm_backward_apply",
         TORCH_FN(renorm::ops::flat_backward_apply<renorm::ops::backward_apply_meta>));
}
