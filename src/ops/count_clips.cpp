// renorm::count_clips_: how often the limits clipped r and d, added to counts on the device of the
// statistics.
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "kernels/averages.h"
#include "ops/batch_renorm.h"

namespace renorm::ops {
namespace {

struct CountArguments {
  at::Tensor counts;  // int64: values, r clipped above, r clipped below, d clipped
  const at::Tensor& batch_mean;
  const at::Tensor& batch_std;
  const at::Tensor& running_mean;
  const at::Tensor& running_std;
  ClipSource limits;
};

void check(const CountArguments& a) {
  TORCH_CHECK(a.counts.scalar_type() == at::kLong && a.counts.dim() == 1 && a.counts.sym_size(0) == 4,
              kCountOp, ": counts must be 4 values of type Long, got ", a.counts.scalar_type(), " of sizes ",
              a.counts.sym_sizes());
  TORCH_CHECK(a.batch_mean.dim() == 2 && a.batch_mean.sym_sizes() == a.batch_std.sym_sizes(), kCountOp,
              ": batch_mean and batch_std must be [groups, channels], got sizes ", a.batch_mean.sym_sizes(),
              " and ", a.batch_std.sym_sizes());
  for (const at::Tensor* average : {&a.running_mean, &a.running_std}) {
    TORCH_CHECK(average->dim() == 1 && average->sym_size(0) == a.batch_mean.sym_size(1), kCountOp,
                ": running_mean and running_std must have ", a.batch_mean.sym_size(1),
                " channels, got sizes ", average->sym_sizes());
  }
  const at::ScalarType type = a.batch_mean.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kDouble, kCountOp,
              ": batch_mean must be Float or Double, got ", type);
  for (const at::Tensor* tensor : {&a.batch_std, &a.running_mean, &a.running_std}) {
    TORCH_CHECK(tensor->scalar_type() == type && tensor->device() == a.batch_mean.device(), kCountOp,
                ": averages and statistics must have one dtype and device, got ", type, " on ",
                a.batch_mean.device(), " and ", tensor->scalar_type(), " on ", tensor->device());
  }
  const at::Tensor& step = *a.limits.step;
  TORCH_CHECK(step.scalar_type() == at::kLong && step.dim() == 0, kCountOp,
              ": step must be one int64 without dimensions, got ", step.scalar_type(), " of sizes ",
              step.sym_sizes());
  TORCH_CHECK(a.counts.device() == a.batch_mean.device() && step.device() == a.batch_mean.device(), kCountOp,
              ": counts and step must be on the device of batch_mean, ", a.batch_mean.device(), ", got ",
              a.counts.device(), " and ", step.device());
}

// On other devices: no value is read by the host. Statistics that are not finite count nothing.
void count_clips_composite(const CountArguments& a) {
  check(a);
  const at::Tensor r = a.batch_std / a.running_std;
  const at::Tensor d = (a.batch_mean - a.running_mean) / a.running_std;
  const Clipped limited = clipped(r, d, a.limits);
  const at::Tensor finite = at::isfinite(r).all().logical_and(at::isfinite(d).all());
  const at::Tensor values = at::full_like(r, 1.0).to(at::kBool);
  const at::Tensor added = at::stack({values, r.gt(limited.r), r.lt(limited.r), d.ne(limited.d)});
  a.counts.add_(added.logical_and(finite).sum({1, 2}));
}

void count_clips_cpu(const CountArguments& a) {
  if (composite_is_forced()) return count_clips_composite(a);
  check(a);
  const at::Tensor mean = a.batch_mean.contiguous();
  const at::Tensor std = a.batch_std.contiguous();
  const at::Tensor running_mean = a.running_mean.contiguous();
  const at::Tensor running_std = a.running_std.contiguous();
  const ClipLimits limits = a.limits.clip.at(*a.limits.step->data_ptr<int64_t>());
  kernels::ClipCounts clips;
  AT_DISPATCH_FLOATING_TYPES(mean.scalar_type(), kCountOp, [&] {
    const auto* means = mean.data_ptr<scalar_t>();
    const auto* stds = std.data_ptr<scalar_t>();
    if (kernels::find_non_finite(means, mean.numel()) >= 0) return;
    if (kernels::find_non_finite(stds, std.numel()) >= 0) return;
    kernels::count_clips(means, stds, running_mean.data_ptr<scalar_t>(), running_std.data_ptr<scalar_t>(),
                         mean.size(0), mean.size(1), limits.r_max, limits.d_max, &clips);
  });
  const int64_t added[] = {clips.values, clips.r_above, clips.r_below, clips.d_outside};
  auto counts = a.counts.accessor<int64_t, 1>();
  for (int64_t i = 0; i < 4; ++i) counts[i] += added[i];
}

// The schema's flat list of arguments in front of an implementation.
template <void (*implementation)(const CountArguments&)>
void flat(at::Tensor counts, const at::Tensor& batch_mean, const at::Tensor& batch_std,
          const at::Tensor& running_mean, const at::Tensor& running_std, const at::Tensor& step, int64_t hold,
          double r_max, int64_t r_step, double d_max, int64_t d_step) {
  implementation({std::move(counts), batch_mean, batch_std, running_mean, running_std,
                  ClipSource{{hold, r_max, r_step, d_max, d_step}, step}});
}

}  // namespace
}  // namespace renorm::ops

TORCH_LIBRARY_IMPL(renorm, CPU, m) {
  m.impl("count_clips_", TORCH_FN(renorm::ops::flat<renorm::ops::count_clips_cpu>));
}
TORCH_LIBRARY_IMPL(renorm, CompositeExplicitAutograd, m) {
  m.impl("count_clips_", TORCH_FN(renorm::ops::flat<renorm::ops::count_clips_composite>));
}
TORCH_LIBRARY_IMPL(renorm, Meta, m) {
  m.impl("count_clips_", TORCH_FN(renorm::ops::flat<renorm::ops::check>));
}
// Nothing here has a gradient, and no backward pass uses the counts.
TORCH_LIBRARY_IMPL(renorm, Autograd, m) { m.impl("count_clips_", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(renorm, ADInplaceOrView, m) {
  m.impl("count_clips_", torch::CppFunction::makeFallthrough());
}
