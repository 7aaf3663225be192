// The bookkeeping of account.h for devices other than the CPU: sums in tensors on the device, which the host
// reads on demand only. No function but read() and collected_finite() makes the host wait.
#pragma once

#include <renorm/nn/batch_renorm.h>

#include <cstdint>

namespace renorm {

class DeviceAccount {
 public:
  // Adds r and d of a training forward to the telemetry. Statistics that are not finite count as skipped.
  void count_clips(const ops::BatchRenormResult& result, const at::Tensor& running_mean,
                   const at::Tensor& running_std);
  // Adds the statistics of a forward to those that commit() will use, unless they are not finite.
  void add(const ops::BatchRenormResult& result);
  // Whether all statistics added since the last commit are finite. Reads from the device.
  bool collected_finite() const { return finite_.item<bool>(); }
  // Moves the averages by the mean over the groups added and adds 1 to `step`.
  void commit(const Optional<double>& momentum, at::Tensor* running_mean, at::Tensor* running_std,
              at::Tensor* step);

  ClipTelemetry read() const;
  void clear_telemetry() { clips_ = {}; }
  void discard() { groups_ = 0; }
  int64_t groups() const { return groups_; }

 private:
  // Telemetry of r (row 0) and d (row 1); undefined before the first forward.
  struct Clips {
    at::Tensor values;   // number of (group, channel) pairs
    at::Tensor clipped;  // [3]: r above, r below, d
    at::Tensor mean;     // [2]
    at::Tensor m2;       // [2], sum of squared distances from the mean
    at::Tensor min;      // [2]
    at::Tensor max;      // [2]
    at::Tensor skipped;  // forwards that were not finite
  };

  Clips clips_;
  at::Tensor mean_sum_;  // [channels]; undefined while nothing was added
  at::Tensor std_sum_;
  at::Tensor finite_;  // whether all added forwards were
  int64_t groups_ = 0;
};

}  // namespace renorm
