// Batch Renormalization as operators, registered as torch.ops.renorm.*. All but move_averages_ are pure: they
// change none of their arguments. The mathematics is in docs/math.md.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <renorm/export.h>
#include <renorm/ops/clip_ramp.h>

#include <array>
#include <cstdint>

namespace renorm {

// LibTorch's optional type: its own in 1.13, std::optional in later releases.
template <typename T>
using Optional = c10::optional<T>;

// Which examples form a normalization group: kContiguous = neighbours in the batch (0 1 2 3 | 4 5 6 7),
// kStrided = every k-th example (0 2 4 6 | 1 3 5 7).
enum class Grouping { kContiguous, kStrided };

// The activation applied after the normalization.
enum class Activation { kNone, kRelu };

// Thrown if batch statistics that are to move averages are not finite.
class RENORM_API NonFiniteStatistics : public c10::Error {
 public:
  using c10::Error::Error;
};

namespace ops {

// How a batch is normalized. The operator checks it at every call.
struct BatchRenormArguments {
  double eps = 1e-5;       // > 0 in the statistics' dtype, inside the root of batch_std
  double r_max = 1.0;      // >= 1, may be infinite; unused by batch_renorm_step
  double d_max = 0.0;      // >= 0, may be infinite; unused by batch_renorm_step
  int64_t group_size = 0;  // examples per group; divides the batch; 0 = the whole batch
  Grouping grouping = Grouping::kContiguous;
  Activation activation = Activation::kNone;
  // Added before the activation; of the input's sizes, dtype and device; may be undefined.
  at::Tensor residual = {};
};

// `output` has the input's shape, dtype and memory format; the statistics are [groups, channels], float
// for float, bfloat16 and half input, double for double. An empty batch has 0 groups.
struct BatchRenormResult {
  at::Tensor output;
  at::Tensor batch_mean;      // rounded; the mean is batch_mean + batch_mean_low
  at::Tensor batch_mean_low;  // kept for the backward pass of data far from zero
  at::Tensor batch_std;
  at::Tensor r;  // after clipping; carries no gradient
  at::Tensor d;  // after clipping; carries no gradient
  // With a residual and ReLU, where the ReLU stops the gradient: one bit per value of output, in memory
  // order, lowest bit first; then seven zero bytes, and one for the order (1: channels last).
  // Otherwise empty.
  at::Tensor mask;
};

// Training. input is [batch, channels, ...]; weight and bias are [channels] or undefined (1 and 0);
// running_mean and running_std are [channels], or both undefined, which is plain batchnorm (r = 1, d = 0).
// running_std must be finite and > 0; on devices other than the CPU this is not checked. Differentiable in
// input, weight, bias and residual, any number of times.
RENORM_API BatchRenormResult batch_renorm(const at::Tensor& input, const at::Tensor& weight,
                                          const at::Tensor& bias, const at::Tensor& running_mean,
                                          const at::Tensor& running_std,
                                          const BatchRenormArguments& arguments);

// The same with the limits of `clip` at the value of `step`, one int64 on the device of input. The device
// evaluates the ramp, so the host does not wait for it.
RENORM_API BatchRenormResult batch_renorm_step(const at::Tensor& input, const at::Tensor& weight,
                                               const at::Tensor& bias, const at::Tensor& running_mean,
                                               const at::Tensor& running_std, const at::Tensor& step,
                                               const ClipRamp& clip, const BatchRenormArguments& arguments);

// Gradients of input, weight, bias and residual; undefined where they were not requested.
struct BatchRenormGradients {
  at::Tensor input;
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor residual;
};

// The gradients of batch_renorm with r and d constant, for training loops without autograd. `forward` is the
// result of batch_renorm with the same tensors and arguments; its output and the residual are not used.
// `output_mask` selects gradients in the order of BatchRenormGradients; without a residual the last is never
// computed.
RENORM_API BatchRenormGradients batch_renorm_backward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
    const BatchRenormResult& forward, const BatchRenormArguments& arguments,
    std::array<bool, 4> output_mask = {true, true, true, true});

// Moves the averages by the mean over the groups of batch_mean and batch_std, [groups, channels], in place,
// and adds 1 to `step`:
//   running += momentum * (mean over groups - running)
// Without momentum the average is cumulative: momentum = 1 / (step + 1). Statistics of 0 groups change
// nothing. On the CPU, statistics that are not finite throw NonFiniteStatistics and change nothing; on other
// devices they change nothing, silently: the host does not wait for the answer.
RENORM_API void move_averages_(at::Tensor running_mean, at::Tensor running_std, at::Tensor step,
                               const at::Tensor& batch_mean, const at::Tensor& batch_std,
                               Optional<double> momentum);

// Inference: activation(weight * (input - running_mean) / running_std + bias + residual). Differentiable in
// input, weight, bias and residual, any number of times.
RENORM_API at::Tensor batch_renorm_inference(const at::Tensor& input, const at::Tensor& weight,
                                             const at::Tensor& bias, const at::Tensor& running_mean,
                                             const at::Tensor& running_std,
                                             Activation activation = Activation::kNone,
                                             const at::Tensor& residual = {});

// batch_renorm in ATen operations, for any device and floating dtype. The operators use it where there is no
// fused kernel, and tests compare the fused kernel with it. Autograd differentiates the operations
// themselves.
RENORM_API BatchRenormResult batch_renorm_composite(const at::Tensor& input, const at::Tensor& weight,
                                                    const at::Tensor& bias, const at::Tensor& running_mean,
                                                    const at::Tensor& running_std,
                                                    const BatchRenormArguments& arguments);

}  // namespace ops
}  // namespace renorm
