// Batch Renormalization in parts, for one normalization group that is divided among processes. Each process
// computes statistics and sums of its share; the caller adds them up over all processes. Registered as
// torch.ops.renorm.*. The operators are pure and have no gradient: BatchRenormOptions::processes and
// renorm.SyncBatchRenorm make differentiable layers of them.
//
//   forward:   statistics -> rows of all processes -> merge -> apply
//   backward:  backward_sums -> their sum over all processes -> backward_apply
#pragma once

#include <ATen/ATen.h>
#include <renorm/export.h>
#include <renorm/ops/batch_renorm.h>
#include <renorm/ops/clip_ramp.h>

namespace renorm::ops {

// The statistics of a whole group, [1, channels] each, float or double.
struct GroupStatistics {
  at::Tensor batch_mean;  // rounded; the mean is batch_mean + batch_mean_low
  at::Tensor batch_mean_low;
  at::Tensor batch_std;
  at::Tensor r;      // after clipping
  at::Tensor d;      // after clipping
  at::Tensor count;  // values per channel, one double without dimensions
};

// [2 * channels + 1] doubles: the number of values per channel, their means, and the sums of squared
// distances from the means. An empty input gives zeros.
RENORM_API at::Tensor batch_renorm_statistics(const at::Tensor& input);

// Chan's formula on `statistics`, [processes, 2 * channels + 1], in the order of the rows: equal rows give
// equal bits in every process. `dtype` is that of the statistics of the input: double for double, else float.
// running_mean, running_std and step as for batch_renorm_step, or all undefined: r = 1, d = 0. If no process
// has a value, the statistics are NaN and count is 0.
RENORM_API GroupStatistics batch_renorm_merge(const at::Tensor& statistics, const at::Tensor& running_mean,
                                              const at::Tensor& running_std, const at::Tensor& step,
                                              const ClipRamp& clip, double eps, at::ScalarType dtype);

// activation(weight * ((input - mean) / batch_std * r + d) + bias)
RENORM_API at::Tensor batch_renorm_apply(const at::Tensor& input, const at::Tensor& weight,
                                         const at::Tensor& bias, const GroupStatistics& group,
                                         Activation activation = Activation::kNone);

// [2, channels] doubles: the sums of g and of g * (input - mean), where g is grad_output after the backward
// pass of the activation. dbias = sums[0], and dweight = r / batch_std * sums[1] + d * sums[0].
RENORM_API at::Tensor batch_renorm_backward_sums(const at::Tensor& grad_output, const at::Tensor& input,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 const GroupStatistics& group,
                                                 Activation activation = Activation::kNone);

// The gradient of the input, with r and d constant, from the sums over all processes.
RENORM_API at::Tensor batch_renorm_backward_apply(const at::Tensor& grad_output, const at::Tensor& input,
                                                  const at::Tensor& weight, const at::Tensor& bias,
                                                  const GroupStatistics& group, const at::Tensor& sums,
                                                  Activation activation = Activation::kNone);

}  // namespace renorm::ops
