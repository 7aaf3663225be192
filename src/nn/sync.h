// Training with statistics over several processes.
#pragma once

#include <renorm/nn/processes.h>
#include <renorm/ops/sync_batch_renorm.h>
#include <torch/types.h>

#include <string>

namespace renorm {

// The statistics of all processes, one row each: [count, 2 * channels + 1]. Calls all_reduce once.
torch::Tensor gather_statistics(const torch::Tensor& input, const Processes& processes);

// activation(weight * x_hat + bias) of this process' share. The backward pass calls all_reduce once if the
// input requires a gradient. The gradients of weight and bias are those of this share.
torch::Tensor normalize_share(const torch::Tensor& input, const torch::Tensor& weight,
                              const torch::Tensor& bias, const ops::GroupStatistics& group,
                              Activation activation, const Processes& processes, const std::string& who);

}  // namespace renorm
