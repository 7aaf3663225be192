// Batch Renormalization as pure operators, registered as torch.ops.renorm.*. No operator changes its
// arguments. The mathematics is in docs/math.md.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <tuple>

namespace renorm {

// LibTorch's optional type: its own in 1.13, std::optional in later releases.
template <typename T>
using Optional = c10::optional<T>;

// Which examples form a normalization group: kContiguous = neighbours in the batch (0 1 2 3 | 4 5 6 7),
// kStrided = every k-th example (0 2 4 6 | 1 3 5 7).
enum class Grouping : int64_t { kContiguous = 0, kStrided = 1 };

// The activation applied after the normalization.
enum class Activation : int64_t { kNone = 0, kRelu = 1 };

namespace ops {

// How a batch is normalized. The operator checks it at every call.
struct BatchRenormArguments {
  double eps = 1e-5;       // > 0, inside the root of batch_std
  double r_max = 1.0;      // >= 1, may be infinite
  double d_max = 0.0;      // >= 0, may be infinite
  int64_t group_size = 0;  // examples per group; divides the batch; 0 = the whole batch
  Grouping grouping = Grouping::kContiguous;
  Activation activation = Activation::kNone;
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
};

// Training. input is [batch, channels, ...]; weight and bias are [channels] or undefined (1 and 0);
// running_mean and running_std are [channels], or both undefined, which is plain batchnorm (r = 1, d = 0).
// Differentiable in input, weight and bias, once.
BatchRenormResult batch_renorm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                               const at::Tensor& running_mean, const at::Tensor& running_std,
                               const BatchRenormArguments& arguments);

// Inference: activation(weight * (input - running_mean) / running_std + bias). Differentiable in input,
// weight and bias, once.
at::Tensor batch_renorm_inference(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                  const at::Tensor& running_mean, const at::Tensor& running_std,
                                  Activation activation = Activation::kNone);

// The same mathematics in ATen operations, for any device and floating dtype. The operators use it where
// there is no fused kernel, and tests compare the fused kernel with it. Autograd differentiates the
// operations themselves.
BatchRenormResult batch_renorm_composite(const at::Tensor& input, const at::Tensor& weight,
                                         const at::Tensor& bias, const at::Tensor& running_mean,
                                         const at::Tensor& running_std,
                                         const BatchRenormArguments& arguments);

}  // namespace ops
}  // namespace renorm
