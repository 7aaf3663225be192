// The bookkeeping after a training forward: clip telemetry, and the statistics that move the averages.
#pragma once

#include <renorm/nn/batch_renorm.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/averages.h"
#include "nn/device_account.h"

namespace renorm {

// Batch statistics of one forward, [groups, channels] on the CPU.
struct HostStatistics {
  explicit HostStatistics(const ops::BatchRenormResult& result);

  // The channel of the first statistic that is not finite, or -1.
  int64_t non_finite_channel() const;

  at::Tensor mean;
  at::Tensor std;
  int64_t groups;
  int64_t channels;
};

struct BatchRenormLayer::Account {
  // Statistics of a training forward that are on the CPU.
  void count_clips(const HostStatistics& statistics, const at::Tensor& running_mean,
                   const at::Tensor& running_std, const ClipLimits& limits);
  void add(const HostStatistics& statistics);
  // Moves the averages by the mean over the groups added, and forgets these groups.
  void move_averages(double momentum, at::Tensor* running_mean, at::Tensor* running_std);
  // The number of groups added and the sums over them, [1 + 2 * channels]; zeros if there are none.
  at::Tensor collected(int64_t channels) const;
  void set_collected(const at::Tensor& values);
  ClipTelemetry telemetry() const;
  void clear_telemetry();
  void discard();
  int64_t waiting_groups() const { return groups + device.groups(); }

  DeviceAccount device;  // of training forwards on other devices
  kernels::ClipCounts clips;
  // Sums over the groups added since the averages last moved. Undefined while groups is 0.
  std::vector<double> mean_sum;
  std::vector<double> std_sum;
  int64_t groups = 0;
};

// Throws unless `values` is what collected() returns, or a sum of such, for a layer with so many channels.
void check_collected_values(const std::string& who, const at::Tensor& values, int64_t channels);

}  // namespace renorm
