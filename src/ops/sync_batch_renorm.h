// The operators for a group that is divided among processes, as the dispatcher calls them. Their schemas are
// in sync_batch_renorm.cpp.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/string_view.h>

#include <tuple>

#include "ops/batch_renorm.h"

namespace renorm::ops {

// batch_mean, batch_mean_low, batch_std, r, d, count
using MergeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

struct MergeArguments {
  const at::Tensor& statistics;
  const OptionalTensor& running_mean;
  const OptionalTensor& running_std;
  ClipSource limits;
  double eps;
  at::ScalarType dtype;
};

// Statistics are [1, channels].
struct ApplyArguments {
  const char* op;  // the operator's name in errors
  const at::Tensor& input;
  const OptionalTensor& weight;  // absent: 1
  const OptionalTensor& bias;    // absent: 0
  const at::Tensor& batch_mean;
  const OptionalTensor& batch_mean_low;  // absent: 0
  const at::Tensor& batch_std;
  const OptionalTensor& r;  // absent: 1
  const OptionalTensor& d;  // absent: 0
  Activation activation;
};

struct SumsArguments {
  const at::Tensor& grad_output;
  ApplyArguments forward;
};

struct GradientArguments {
  const at::Tensor& grad_output;
  ApplyArguments forward;
  const at::Tensor& sums;
  const at::Tensor& count;
};

// Calls through the dispatcher.
at::Tensor call_statistics(const at::Tensor& input);
MergeTensors call_merge(const MergeArguments& arguments);
at::Tensor call_apply(const ApplyArguments& arguments);
at::Tensor call_backward_sums(const SumsArguments& arguments);
at::Tensor call_backward_apply(const GradientArguments& arguments);

// The operators in ATen operations, where there is no fused kernel.
at::Tensor statistics_composite(const at::Tensor& input);
MergeTensors merge_composite(const MergeArguments& arguments);
at::Tensor apply_composite(const ApplyArguments& arguments);
at::Tensor backward_sums_composite(const SumsArguments& arguments);
at::Tensor backward_apply_composite(const GradientArguments& arguments);

constexpr const char* kStatisticsOp = "renorm::batch_renorm_statistics";
constexpr const char* kMergeOp = "renorm::batch_renorm_merge";
constexpr const char* kApplyOp = "renorm::batch_renorm_apply";
constexpr const char* kSumsOp = "renorm::batch_renorm_backward_sums";
constexpr const char* kGradientOp = "renorm::batch_renorm_backward_apply";

// The schemas' flat lists of arguments in front of an implementation.
template <decltype(call_merge)* implementation>
MergeTensors flat_merge(const at::Tensor& statistics, const OptionalTensor& running_mean,
                        const OptionalTensor& running_std, const OptionalTensor& step, int64_t hold,
                        double r_max, int64_t r_step, double d_max, int64_t d_step, double eps,
                        at::ScalarType dtype) {
  return implementation({statistics, running_mean, running_std,
                         ClipSource{{hold, r_max, r_step, d_max, d_step}, step}, eps, dtype});
}

template <decltype(call_apply)* implementation>
at::Tensor flat_apply(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                      const at::Tensor& batch_mean, const OptionalTensor& batch_mean_low,
                      const at::Tensor& batch_std, const OptionalTensor& r, const OptionalTensor& d,
                      c10::string_view activation) {
  return implementation({kApplyOp, input, weight, bias, batch_mean, batch_mean_low, batch_std, r, d,
                         parse_activation(kApplyOp, activation)});
}

template <decltype(call_backward_sums)* implementation>
at::Tensor flat_backward_sums(const at::Tensor& grad_output, const at::Tensor& input,
                              const OptionalTensor& weight, const OptionalTensor& bias,
                              const at::Tensor& batch_mean, const OptionalTensor& batch_mean_low,
                              const at::Tensor& batch_std, const OptionalTensor& r, const OptionalTensor& d,
                              c10::string_view activation) {
  return implementation({grad_output,
                         {kSumsOp, input, weight, bias, batch_mean, batch_mean_low, batch_std, r, d,
                          parse_activation(kSumsOp, activation)}});
}

template <decltype(call_backward_apply)* implementation>
at::Tensor flat_backward_apply(const at::Tensor& grad_output, const at::Tensor& input,
                               const OptionalTensor& weight, const OptionalTensor& bias,
                               const at::Tensor& batch_mean, const OptionalTensor& batch_mean_low,
                               const at::Tensor& batch_std, const OptionalTensor& r, const OptionalTensor& d,
                               const at::Tensor& sums, const at::Tensor& count, c10::string_view activation) {
  return implementation({grad_output,
                         {kGradientOp, input, weight, bias, batch_mean, batch_mean_low, batch_std, r, d,
                          parse_activation(kGradientOp, activation)},
                         sums,
                         count});
}

}  // namespace renorm::ops
