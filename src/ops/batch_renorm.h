// The operators as the dispatcher calls them. Their schemas are in batch_renorm.cpp.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/string_view.h>
#include <renorm/ops/batch_renorm.h>

#include <array>
#include <tuple>

namespace renorm::ops {

using OptionalTensor = Optional<at::Tensor>;

inline OptionalTensor optional(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : OptionalTensor();
}
inline at::Tensor value_or_undefined(const OptionalTensor& tensor) {
  return tensor.has_value() ? *tensor : at::Tensor();
}

// output, batch_mean, batch_mean_low, batch_std, r, d, mask
using ForwardTensors =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
// Gradients of input, weight, bias and residual; undefined where output_mask is false.
using BackwardTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// The limits of r and d: those of `clip`, at the value of `step` if that is present. Without a step,
// clip.hold is negative.
struct ClipSource {
  ClipRamp clip;
  OptionalTensor step;
};

// Arguments of renorm::batch_renorm and renorm::batch_renorm_step. Tensors are the caller's: the structs are
// valid only during a call.
struct ForwardArguments {
  const char* op;  // the operator's name in errors
  const at::Tensor& input;
  const OptionalTensor& weight;  // absent: 1
  const OptionalTensor& bias;    // absent: 0
  const OptionalTensor& running_mean;
  const OptionalTensor& running_std;
  const OptionalTensor& residual;
  ClipSource limits;
  double eps;
  int64_t group_size;
  Grouping grouping;
  Activation activation;
};

// Arguments of renorm::batch_renorm_backward, the gradient with r and d constant. Statistics are
// [groups, channels].
struct BackwardArguments {
  const at::Tensor& grad_output;
  const at::Tensor& input;
  const OptionalTensor& weight;  // absent: 1
  const OptionalTensor& bias;    // absent: 0; used for kRelu without a mask only
  const OptionalTensor& mask;    // of the forward; absent or empty: none, and for kRelu it is recomputed
  const at::Tensor& batch_mean;
  const OptionalTensor& batch_mean_low;  // absent: 0
  const at::Tensor& batch_std;
  const OptionalTensor& r;  // absent: 1
  const OptionalTensor& d;  // absent: 0
  int64_t group_size;
  Grouping grouping;
  Activation activation;
  bool frozen;  // batch_mean and batch_std are constant too, as in inference
  std::array<bool, 4> output_mask;
};

// Arguments of renorm::batch_renorm_inference.
struct InferenceArguments {
  const at::Tensor& input;
  const OptionalTensor& weight;
  const OptionalTensor& bias;
  const at::Tensor& running_mean;
  const at::Tensor& running_std;
  Activation activation;
  const OptionalTensor& residual;
};

// Calls through the dispatcher: batch_renorm_step if a step is present, else batch_renorm.
ForwardTensors call_batch_renorm(const ForwardArguments& arguments);
BackwardTensors call_batch_renorm_backward(const BackwardArguments& arguments);
at::Tensor call_batch_renorm_inference(const InferenceArguments& arguments);

// The operators in ATen operations, where there is no fused kernel. Autograd can differentiate the first and
// the last.
ForwardTensors batch_renorm_forward_composite(const ForwardArguments& arguments);
BackwardTensors batch_renorm_backward_composite(const BackwardArguments& arguments);
at::Tensor batch_renorm_inference_composite(const InferenceArguments& arguments);
// The backward in ATen operations that autograd can differentiate, also through the batch statistics.
BackwardTensors batch_renorm_backward_differentiable(const BackwardArguments& arguments);

// r and d within the limits, in ATen operations. With a step tensor the device computes the limits.
struct Clipped {
  at::Tensor r;
  at::Tensor d;
};
Clipped clipped(const at::Tensor& r, const at::Tensor& d, const ClipSource& limits);

// Tests only: the CPU computes as other devices do, in ATen operations.
void force_composite(bool on);
bool composite_is_forced();

// Names in schemas. An unknown name is an error that lists the known ones.
c10::string_view name_of(Grouping grouping);
c10::string_view name_of(Activation activation);
Grouping parse_grouping(const char* op, c10::string_view name);
Activation parse_activation(const char* op, c10::string_view name);

constexpr const char* kForwardOp = "renorm::batch_renorm";
constexpr const char* kStepOp = "renorm::batch_renorm_step";
constexpr const char* kBackwardOp = "renorm::batch_renorm_backward";
constexpr const char* kInferenceOp = "renorm::batch_renorm_inference";
constexpr const char* kMoveOp = "renorm::move_averages_";
constexpr const char* kCountOp = "renorm::count_clips_";
constexpr const char* kTrainOp = "renorm::batch_renorm_train_";

// The schemas' flat lists of arguments in front of an implementation:
//   m.impl("batch_renorm", TORCH_FN(flat_forward<batch_renorm_cpu>));
template <decltype(call_batch_renorm)* implementation>
ForwardTensors flat_forward(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                            const OptionalTensor& running_mean, const OptionalTensor& running_std, double eps,
                            double r_max, double d_max, int64_t group_size, c10::string_view grouping,
                            c10::string_view activation, const OptionalTensor& residual) {
  const ClipRamp constant{/*hold=*/-1, r_max, 0, d_max, 0};
  return implementation({kForwardOp, input, weight, bias, running_mean, running_std, residual,
                         ClipSource{constant, {}}, eps, group_size, parse_grouping(kForwardOp, grouping),
                         parse_activation(kForwardOp, activation)});
}

template <decltype(call_batch_renorm)* implementation>
ForwardTensors flat_step(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                         const at::Tensor& running_mean, const at::Tensor& running_std,
                         const at::Tensor& step, int64_t hold, double r_max, int64_t r_step, double d_max,
                         int64_t d_step, double eps, int64_t group_size, c10::string_view grouping,
                         c10::string_view activation, const OptionalTensor& residual) {
  return implementation({kStepOp, input, weight, bias, optional(running_mean), optional(running_std),
                         residual, ClipSource{{hold, r_max, r_step, d_max, d_step}, step}, eps, group_size,
                         parse_grouping(kStepOp, grouping), parse_activation(kStepOp, activation)});
}

template <decltype(call_batch_renorm_backward)* implementation>
BackwardTensors flat_backward(const at::Tensor& grad_output, const at::Tensor& input,
                              const OptionalTensor& weight, const OptionalTensor& bias,
                              const OptionalTensor& mask, const at::Tensor& batch_mean,
                              const OptionalTensor& batch_mean_low, const at::Tensor& batch_std,
                              const OptionalTensor& r, const OptionalTensor& d, int64_t group_size,
                              c10::string_view grouping, c10::string_view activation, bool frozen,
                              std::array<bool, 4> output_mask) {
  return implementation({grad_output, input, weight, bias, mask, batch_mean, batch_mean_low, batch_std, r, d,
                         group_size, parse_grouping(kBackwardOp, grouping),
                         parse_activation(kBackwardOp, activation), frozen, output_mask});
}

template <decltype(call_batch_renorm_inference)* implementation>
at::Tensor flat_inference(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                          const at::Tensor& running_mean, const at::Tensor& running_std,
                          c10::string_view activation, const OptionalTensor& residual) {
  return implementation(
      {input, weight, bias, running_mean, running_std, parse_activation(kInferenceOp, activation), residual});
}

}  // namespace renorm::ops
