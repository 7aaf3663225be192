// Our operators as shipped, and our kernels into preallocated memory.
#pragma once

#include <renorm/ops/batch_renorm.h>

#include <tuple>

#include "bench/cases.h"
#include "kernels/problem.h"

namespace renorm::bench {

inline constexpr int64_t kGroupSize = 4;

// As shipped: the operators allocate their results.
class Ours {
 public:
  explicit Ours(const Data& data, double r_max = kRMax, double d_max = kDMax);

  ops::BatchRenormResult forward(Ending ending, int64_t group_size = 0) const;
  // dx, dweight, dbias; with kAddRelu also the gradient of the residual, which is not returned.
  // `group_size`: 0, or kGroupSize with kNone.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(Ending ending, int64_t group_size = 0) const;
  at::Tensor inference(Ending ending) const;

  // kAddRelu by a norm, an addition and a ReLU as separate calls.
  at::Tensor forward_separately() const;
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward_separately() const;
  at::Tensor inference_separately() const;

 private:
  ops::BatchRenormArguments arguments(Ending ending, int64_t group_size) const;

  Data data_;
  double r_max_, d_max_;
  ops::BatchRenormResult saved_;
  ops::BatchRenormResult saved_with_mask_;  // of kAddRelu
  ops::BatchRenormResult saved_in_groups_;
  at::Tensor added_output_;  // relu(norm(x) + residual)
};

// Preallocated, float only. Outputs are in memory of the kind that the operators allocate.
class OursInto {
 public:
  OursInto(const Case& shape_and_layout, const Data& data, const Ours& ours);

  void forward(Activation activation);
  void backward(Activation activation);  // of the latest forward
  void inference(Activation activation);

  at::Tensor output, input_gradient, dweight, dbias;

 private:
  Data data_;
  kernels::Layout layout_;
  kernels::Shape shape_;
  at::Tensor batch_mean_, batch_mean_low_, batch_std_, r_, d_;
};

}  // namespace renorm::bench
