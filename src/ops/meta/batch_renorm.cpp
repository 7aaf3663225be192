// Tensors without data that have the shape, dtype and strides of the operators' results.
#include "ops/batch_renorm.h"

#include <torch/library.h>

#include "ops/arguments.h"

namespace renorm::ops {
namespace {

ForwardTensors batch_renorm_meta(const ForwardArguments& a) {
  check_batch_renorm(a);
  const auto options = a.input.options().dtype(statistics_type(a.input.scalar_type()));
  const std::array<c10::SymInt, 2> sizes{sym_group_count(a.input, a.group_size), a.input.sym_size(1)};
  const auto statistic = [&] { return at::empty_symint(sizes, options); };
  const c10::SymInt mask_size =
      has_mask(a) && a.input.sym_numel() != 0 ? sym_mask_size(a.input.sym_numel()) : c10::SymInt(0);
  return {at::empty_like(dense(a.input)),
          statistic(),
          statistic(),
          statistic(),
          statistic(),
          statistic(),
          at::empty_symint({mask_size}, a.input.options().dtype(at::kByte))};
}

BackwardTensors batch_renorm_backward_meta(const BackwardArguments& a) {
  check_batch_renorm_backward(a);
  const auto like_input = [&](bool wanted) { return wanted ? at::empty_like(dense(a.input)) : at::Tensor(); };
  const auto per_channel = [&](bool wanted) {
    return wanted ? at::empty_symint({a.input.sym_size(1)}, a.batch_std.options()) : at::Tensor();
  };
  return {like_input(a.output_mask[0]), per_channel(a.output_mask[1]), per_channel(a.output_mask[2]),
          like_input(a.output_mask[3])};
}

at::Tensor batch_renorm_inference_meta(const InferenceArguments& a) {
  check_batch_renorm_inference(a);
  return at::empty_like(dense(a.input));
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, Meta, m) {
  m.impl("batch_renorm", TORCH_FN(renorm::ops::flat_forward<renorm::ops::batch_renorm_meta>));
  m.impl("batch_renorm_step", TORCH_FN(renorm::ops::flat_step<renorm::ops::batch_renorm_meta>));
  m.impl("batch_renorm_backward",
         TORCH_FN(renorm::ops::flat_backward<renorm::ops::batch_renorm_backward_meta>));
  m.impl("batch_renorm_inference",
         TORCH_FN(renorm::ops::flat_inference<renorm::ops::batch_renorm_inference_meta>));
}
