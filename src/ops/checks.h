// What every operator demands of its arguments, said in one sentence each.
#pragma once

#include <ATen/ATen.h>
#include <renorm/ops/batch_renorm.h>

#include "ops/schema.h"

namespace renorm::ops {

// The dtype of parameters and statistics that goes with input of `input`: double for double, else float.
at::ScalarType statistics_type(at::ScalarType input);

// One check for each operator; every implementation of it calls the check first.
void check_batch_renorm(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                        const OptionalTensor& running_mean, const OptionalTensor& running_std,
                        const BatchRenormArguments& arguments);
void check_batch_renorm_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                 const OptionalTensor& weight, const OptionalTensor& bias,
                                 const at::Tensor& batch_mean, const OptionalTensor& batch_mean_low,
                                 const at::Tensor& batch_std, const OptionalTensor& r,
                                 const OptionalTensor& d, const BatchRenormArguments& arguments);
void check_batch_renorm_inference(const at::Tensor& input, const OptionalTensor& weight,
                                  const OptionalTensor& bias, const at::Tensor& running_mean,
                                  const at::Tensor& running_std, int64_t activation);

// Groups of a checked batch: 0 for an empty input.
int64_t group_count(const at::Tensor& input, int64_t group_size);

}  // namespace renorm::ops
