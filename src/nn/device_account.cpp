#include "nn/device_account.h"

#include <limits>

namespace renorm {
namespace {

at::Tensor all_finite(const ops::BatchRenormResult& result) {
  return at::isfinite(result.batch_mean).all().logical_and(at::isfinite(result.batch_std).all());
}

// Zeros where `finite` is false, also in place of NaN.
at::Tensor zero_unless(const at::Tensor& finite, const at::Tensor& value) {
  return at::where(finite, value, at::zeros_like(value));
}

}  // namespace

void DeviceAccount::count_clips(const ops::BatchRenormResult& result, const at::Tensor& running_mean,
                                const at::Tensor& running_std) {
  const at::Tensor raw_r = result.batch_std / running_std;
  const at::Tensor raw_d = (result.batch_mean - running_mean) / running_std;
  const at::Tensor finite = all_finite(result);
  const at::Tensor raw = zero_unless(finite, at::stack({raw_r.flatten(), raw_d.flatten()}));
  const at::Tensor mean = raw.mean(1);
  const at::Tensor m2 = (raw - mean.unsqueeze(1)).square().sum(1);
  const at::Tensor clipped =
      at::stack({raw_r.gt(result.r).sum(), raw_r.lt(result.r).sum(), raw_d.ne(result.d).sum()});
  const at::Tensor added = zero_unless(finite, at::full_like(mean.select(0, 0), raw.size(1)));
  if (!clips_.values.defined()) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    clips_ = {at::zeros_like(added), at::zeros_like(clipped),        at::zeros_like(mean),
              at::zeros_like(m2),    at::full_like(mean, kInfinity), at::full_like(mean, -kInfinity),
              at::zeros_like(added)};
  }
  // Chan's merge of two sets; the share is 0 if nothing was added.
  const at::Tensor total = clips_.values + added;
  const at::Tensor share = added / total.clamp_min(1.0);
  const at::Tensor delta = mean - clips_.mean;
  clips_.m2 = clips_.m2 + zero_unless(finite, m2) + delta.square() * clips_.values * share;
  clips_.mean = clips_.mean + delta * share;
  clips_.values = total;
  clips_.clipped = clips_.clipped + zero_unless(finite, clipped);
  clips_.min = at::where(finite, at::minimum(clips_.min, raw.amin(1)), clips_.min);
  clips_.max = at::where(finite, at::maximum(clips_.max, raw.amax(1)), clips_.max);
  clips_.skipped = clips_.skipped + finite.logical_not();
}

void DeviceAccount::add(const ops::BatchRenormResult& result) {
  const at::Tensor finite = all_finite(result);
  const auto sum = [&](const at::Tensor& statistics) { return zero_unless(finite, statistics.sum(0)); };
  if (groups_ == 0) {
    mean_sum_ = sum(result.batch_mean);
    std_sum_ = sum(result.batch_std);
    finite_ = finite;
  } else {
    mean_sum_ = mean_sum_ + sum(result.batch_mean);
    std_sum_ = std_sum_ + sum(result.batch_std);
    finite_ = finite_.logical_and(finite);
  }
  groups_ += result.batch_mean.size(0);
}

void DeviceAccount::commit(const Optional<double>& momentum, at::Tensor* running_mean,
                           at::Tensor* running_std, at::Tensor* step) {
  const auto groups = static_cast<double>(groups_);
  groups_ = 0;
  ops::move_averages_(*running_mean, *running_std, *step, (mean_sum_ / groups).unsqueeze(0),
                      (std_sum_ / groups).unsqueeze(0), momentum);
}

ClipTelemetry DeviceAccount::read() const {
  ClipTelemetry telemetry;
  if (!clips_.values.defined()) return telemetry;
  telemetry.skipped = clips_.skipped.item<int64_t>();
  telemetry.values = clips_.values.item<int64_t>();
  if (telemetry.values == 0) return telemetry;
  const auto n = static_cast<double>(telemetry.values);
  const at::Tensor clipped = clips_.clipped.to(at::kCPU);
  telemetry.r_clipped_above = clipped[0].item<double>() / n;
  telemetry.r_clipped_below = clipped[1].item<double>() / n;
  telemetry.d_clipped = clipped[2].item<double>() / n;
  const at::Tensor moments = at::stack({clips_.mean, (clips_.m2 / n).sqrt(), clips_.min, clips_.max});
  const at::Tensor host = moments.to(at::kCPU, at::kDouble);
  const auto summary = [&](int64_t row) {
    const auto at = [&](int64_t i) { return host[i][row].item<double>(); };
    return ClipTelemetry::Summary{at(0), at(1), at(2), at(3)};
  };
  telemetry.r = summary(0);
  telemetry.d = summary(1);
  return telemetry;
}

}  // namespace renorm
