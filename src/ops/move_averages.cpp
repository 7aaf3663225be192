// renorm::move_averages_, the operator that changes its arguments: on the CPU, elsewhere, without data, and
// the version counters for autograd.
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <array>
#include <vector>

#include "kernels/averages.h"
#include "ops/arguments.h"
#include "ops/batch_renorm.h"

namespace renorm::ops {
namespace {

// On other devices: no value is read by the host.
void move_averages_composite(at::Tensor running_mean, at::Tensor running_std, at::Tensor step,
                             const at::Tensor& batch_mean, const at::Tensor& batch_std,
                             Optional<double> momentum) {
  check_move_averages(running_mean, running_std, step, batch_mean, batch_std, momentum);
  if (batch_mean.numel() == 0) return;
  const at::Tensor finite = at::isfinite(batch_mean).all().logical_and(at::isfinite(batch_std).all());
  const at::Tensor weight = momentum.has_value() ? at::full_like(running_mean, *momentum)
                                                 : (step + 1).to(running_mean.scalar_type()).reciprocal();
  const auto move = [&](const at::Tensor& statistics, const at::Tensor& running) {
    const at::Tensor moved = running + weight * (statistics.mean(0) - running);
    running.copy_(at::where(finite, moved, running));
  };
  move(batch_mean, running_mean);
  move(batch_std, running_std);
  step.add_(finite.to(at::kLong));
}

// The weight of the new value: cumulative without momentum.
double weight_of(const Optional<double>& momentum, int64_t step) {
  return momentum.has_value() ? *momentum : 1.0 / static_cast<double>(step + 1);
}

// Moves one average in place, also if it is not contiguous.
template <typename P>
void move_average(const at::Tensor& statistics, double weight, at::Tensor* running) {
  const int64_t groups = statistics.size(0);
  const int64_t channels = statistics.size(1);
  std::vector<double> sum(static_cast<size_t>(channels), 0.0);
  kernels::add_groups(statistics.data_ptr<P>(), groups, channels, sum.data());
  const at::Tensor moved = running->contiguous();
  kernels::move_average(sum.data(), static_cast<double>(groups), channels, weight, moved.data_ptr<P>());
  if (!moved.is_same(*running)) running->copy_(moved);
}

void move_averages_cpu(at::Tensor running_mean, at::Tensor running_std, at::Tensor step,
                       const at::Tensor& batch_mean, const at::Tensor& batch_std, Optional<double> momentum) {
  if (composite_is_forced()) {
    return move_averages_composite(running_mean, running_std, step, batch_mean, batch_std, momentum);
  }
  check_move_averages(running_mean, running_std, step, batch_mean, batch_std, momentum);
  if (batch_mean.numel() == 0) return;
  const at::Tensor mean = batch_mean.contiguous();
  const at::Tensor std = batch_std.contiguous();
  int64_t& steps = *step.data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES(mean.scalar_type(), kMoveOp, [&] {
    int64_t bad = kernels::find_non_finite(mean.data_ptr<scalar_t>(), mean.numel());
    if (bad < 0) bad = kernels::find_non_finite(std.data_ptr<scalar_t>(), std.numel());
    if (bad >= 0) {
      throw NonFiniteStatistics(
          {"move_averages_cpu", __FILE__, __LINE__},
          c10::str(kMoveOp, ": the batch statistics of channel ", bad % mean.size(1),
                   " are not finite (step ", steps, "); look for overflow or NaN in the input"));
    }
    const double weight = weight_of(momentum, steps);
    move_average<scalar_t>(mean, weight, &running_mean);
    move_average<scalar_t>(std, weight, &running_std);
  });
  steps += 1;
}

void move_averages_meta(at::Tensor running_mean, at::Tensor running_std, at::Tensor step,
                        const at::Tensor& batch_mean, const at::Tensor& batch_std,
                        Optional<double> momentum) {
  check_move_averages(running_mean, running_std, step, batch_mean, batch_std, momentum);
}

// Autograd does not see the writes of a kernel: a backward pass that still uses an old value must fail.
void move_averages_in_place(at::Tensor running_mean, at::Tensor running_std, at::Tensor step,
                            const at::Tensor& batch_mean, const at::Tensor& batch_std,
                            Optional<double> momentum) {
  check_no_tangent(kMoveOp,
                   std::array<const at::Tensor*, 4>{&running_mean, &running_std, &batch_mean, &batch_std});
  {
    at::AutoDispatchBelowADInplaceOrView below;
    move_averages_(running_mean, running_std, step, batch_mean, batch_std, momentum);
  }
  for (const at::Tensor* changed : {&running_mean, &running_std, &step}) {
    if (!changed->is_inference()) changed->unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, CPU, m) { m.impl("move_averages_", TORCH_FN(renorm::ops::move_averages_cpu)); }
TORCH_LIBRARY_IMPL(renorm, CompositeExplicitAutograd, m) {
  m.impl("move_averages_", TORCH_FN(renorm::ops::move_averages_composite));
}
TORCH_LIBRARY_IMPL(renorm, Meta, m) { m.impl("move_averages_", TORCH_FN(renorm::ops::move_averages_meta)); }
// Nothing here has a gradient. LibTorch's own fallback would box the arguments.
TORCH_LIBRARY_IMPL(renorm, Autograd, m) { m.impl("move_averages_", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(renorm, ADInplaceOrView, m) {
  m.impl("move_averages_", TORCH_FN(renorm::ops::move_averages_in_place));
}
