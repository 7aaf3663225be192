#include "nn/account.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>

namespace renorm {
namespace {

// Doubles count every whole number up to this one.
constexpr double kMaxGroups = 0x1p53;

// The same tensor if it is contiguous and on the CPU, else a copy that is.
at::Tensor on_host(const at::Tensor& tensor) {
  return (tensor.is_cpu() ? tensor : tensor.to(at::kCPU)).contiguous();
}

void add_groups(const at::Tensor& value, std::vector<double>* sum) {
  AT_DISPATCH_FLOATING_TYPES(value.scalar_type(), "renorm::add_groups", [&] {
    kernels::add_groups(value.data_ptr<scalar_t>(), value.size(0), value.size(1), sum->data());
  });
}

// In place: the registered buffer keeps its storage. Autograd does not see raw writes, so the version is
// raised by hand: a backward pass that still uses the old value must fail.
void move_average(const std::vector<double>& sum, int64_t groups, double momentum, at::Tensor* running) {
  const at::Tensor host = on_host(*running);
  AT_DISPATCH_FLOATING_TYPES(host.scalar_type(), "renorm::move_average", [&] {
    kernels::move_average(sum.data(), static_cast<double>(groups), host.numel(), momentum,
                          host.data_ptr<scalar_t>());
  });
  if (host.is_same(*running)) {
    if (!running->is_inference()) running->unsafeGetTensorImpl()->bump_version();
  } else {
    running->copy_(host);
  }
}

ClipTelemetry::Summary summary(const kernels::Moments& moments, int64_t count) {
  const auto n = static_cast<double>(count);
  return {moments.sum / n, std::sqrt(std::max(0.0, moments.m2 / n)), moments.min, moments.max};
}

}  // namespace

HostStatistics::HostStatistics(const ops::BatchRenormResult& result)
    : mean(on_host(result.batch_mean)),
      std(on_host(result.batch_std)),
      groups(mean.size(0)),
      channels(mean.size(1)) {}

int64_t HostStatistics::non_finite_channel() const {
  int64_t found = -1;
  AT_DISPATCH_FLOATING_TYPES(mean.scalar_type(), "renorm::find_non_finite", [&] {
    found = kernels::find_non_finite(mean.data_ptr<scalar_t>(), groups * channels);
    if (found < 0) found = kernels::find_non_finite(std.data_ptr<scalar_t>(), groups * channels);
  });
  return found < 0 ? found : found % channels;
}

void BatchRenormLayer::Account::count_clips(const HostStatistics& statistics, const at::Tensor& running_mean,
                                            const at::Tensor& running_std, const ClipLimits& limits) {
  const at::Tensor mean = on_host(running_mean);
  const at::Tensor std = on_host(running_std);
  AT_DISPATCH_FLOATING_TYPES(mean.scalar_type(), "renorm::count_clips", [&] {
    kernels::count_clips(statistics.mean.data_ptr<scalar_t>(), statistics.std.data_ptr<scalar_t>(),
                         mean.data_ptr<scalar_t>(), std.data_ptr<scalar_t>(), statistics.groups,
                         statistics.channels, limits.r_max, limits.d_max, &clips);
  });
}

void BatchRenormLayer::Account::add(const HostStatistics& statistics) {
  if (groups == 0) {
    mean_sum.assign(statistics.channels, 0.0);
    std_sum.assign(statistics.channels, 0.0);
  }
  add_groups(statistics.mean, &mean_sum);
  add_groups(statistics.std, &std_sum);
  groups += statistics.groups;
}

void BatchRenormLayer::Account::move_averages(double momentum, at::Tensor* running_mean,
                                              at::Tensor* running_std) {
  move_average(mean_sum, groups, momentum, running_mean);
  move_average(std_sum, groups, momentum, running_std);
  groups = 0;
}

at::Tensor BatchRenormLayer::Account::collected(int64_t channels) const {
  at::Tensor values = at::zeros({1 + 2 * channels}, at::kDouble);
  if (groups == 0) return values;
  auto* value = values.data_ptr<double>();
  *value = static_cast<double>(groups);
  std::copy(mean_sum.begin(), mean_sum.end(), value + 1);
  std::copy(std_sum.begin(), std_sum.end(), value + 1 + channels);
  return values;
}

void BatchRenormLayer::Account::set_collected(const at::Tensor& values) {
  const at::Tensor dense = values.contiguous();
  const auto* value = dense.data_ptr<double>();
  const int64_t channels = (dense.numel() - 1) / 2;
  groups = static_cast<int64_t>(*value);
  mean_sum.assign(value + 1, value + 1 + channels);
  std_sum.assign(value + 1 + channels, value + 1 + 2 * channels);
}

void BatchRenormLayer::Account::clear_telemetry() {
  clips = {};
  device.clear_telemetry();
}

void BatchRenormLayer::Account::discard() {
  groups = 0;
  device.discard();
}

ClipTelemetry BatchRenormLayer::Account::telemetry() const {
  if (clips.values == 0) return device.read();
  ClipTelemetry telemetry;
  const auto fraction = [this](int64_t count) {
    return static_cast<double>(count) / static_cast<double>(clips.values);
  };
  telemetry.values = clips.values;
  telemetry.r_clipped_above = fraction(clips.r_above);
  telemetry.r_clipped_below = fraction(clips.r_below);
  telemetry.d_clipped = fraction(clips.d_outside);
  telemetry.r = summary(clips.r, clips.values);
  telemetry.d = summary(clips.d, clips.values);
  return telemetry;
}

void check_collected_values(const std::string& who, const at::Tensor& values, int64_t channels) {
  const int64_t size = 1 + 2 * channels;
  TORCH_CHECK(values.defined(), who, ": values must be a tensor, got an undefined one");
  TORCH_CHECK(
      values.is_cpu() && values.scalar_type() == at::kDouble && values.dim() == 1 && values.size(0) == size,
      who, ": values must be Double [", size, "] on cpu, got ", values.scalar_type(), " ", values.sizes(),
      " on ", values.device());
  const at::Tensor dense = values.contiguous();
  const auto* value = dense.data_ptr<double>();
  const int64_t bad = kernels::find_non_finite(value, size);
  TORCH_CHECK(bad < 0, who, ": values must be finite, got ", value[bad], " at index ", bad);
  TORCH_CHECK(*value >= 0.0 && *value <= kMaxGroups && *value == std::floor(*value), who,
              ": values must begin with a whole number of groups >= 0, got ", *value);
}

}  // namespace renorm
