#include "bench/ours.h"

#include <ATen/Parallel.h>

#include "kernels/kernels.h"

namespace renorm::bench {
namespace {

kernels::Activation in_kernel(Activation activation) {
  return activation == Activation::kRelu ? kernels::Activation::kRelu : kernels::Activation::kNone;
}

const kernels::ParallelFor& on_torch_threads() {
  static const kernels::ParallelFor parallel_for = [](int64_t count, const kernels::Body& body) {
    at::parallel_for(0, count, 1, body);
  };
  return parallel_for;
}

kernels::Shape kernel_shape(const Case& shape_and_layout) {
  const std::vector<int64_t>& sizes = shape_and_layout.sizes;
  return {sizes[0], sizes[1], sizes.size() == 4 ? sizes[2] * sizes[3] : 1};
}

}  // namespace

Ours::Ours(const Data& data, double r_max, double d_max) : data_(data), r_max_(r_max), d_max_(d_max) {
  saved_ = forward(Ending::kNone);
  saved_with_mask_ = forward(Ending::kAddRelu);
  saved_with_mask_.output.reset();
  saved_in_groups_ = forward(Ending::kNone, kGroupSize);
  saved_in_groups_.output.reset();
  added_output_ = forward_separately();
}

ops::BatchRenormArguments Ours::arguments(Ending ending, int64_t group_size) const {
  ops::BatchRenormArguments arguments;
  arguments.eps = kEps;
  arguments.r_max = r_max_;
  arguments.d_max = d_max_;
  arguments.group_size = group_size;
  arguments.activation = ending == Ending::kNone ? Activation::kNone : Activation::kRelu;
  if (ending == Ending::kAddRelu) arguments.residual = data_.residual;
  return arguments;
}

ops::BatchRenormResult Ours::forward(Ending ending, int64_t group_size) const {
  return ops::batch_renorm(data_.x, data_.weight, data_.bias, data_.running_mean, data_.running_std,
                           arguments(ending, group_size));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> Ours::backward(Ending ending, int64_t group_size) const {
  const ops::BatchRenormResult& saved = group_size != 0              ? saved_in_groups_
                                        : ending == Ending::kAddRelu ? saved_with_mask_
                                                                     : saved_;
  ops::BatchRenormGradients gradients = ops::batch_renorm_backward(
      data_.dy, data_.x, data_.weight, data_.bias, saved, arguments(ending, group_size));
  return {std::move(gradients.input), std::move(gradients.weight), std::move(gradients.bias)};
}

at::Tensor Ours::inference(Ending ending) const {
  const ops::BatchRenormArguments given = arguments(ending, /*group_size=*/0);
  return ops::batch_renorm_inference(data_.x, data_.weight, data_.bias, data_.running_mean, data_.running_std,
                                     given.activation, given.residual);
}

at::Tensor Ours::forward_separately() const {
  at::Tensor y = forward(Ending::kNone).output;
  return y.add_(data_.residual).relu_();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> Ours::backward_separately() const {
  const at::Tensor dy = at::threshold_backward(data_.dy, added_output_, 0);
  ops::BatchRenormGradients gradients = ops::batch_renorm_backward(
      dy, data_.x, data_.weight, data_.bias, saved_, arguments(Ending::kNone, /*group_size=*/0));
  return {std::move(gradients.input), std::move(gradients.weight), std::move(gradients.bias)};
}

at::Tensor Ours::inference_separately() const {
  return inference(Ending::kNone).add_(data_.residual).relu_();
}

OursInto::OursInto(const Case& shape_and_layout, const Data& data, const Ours& ours)
    : output(ours.inference(Ending::kNone)),
      input_gradient(ours.inference(Ending::kNone)),
      dweight(at::empty_like(data.weight)),
      dbias(at::empty_like(data.weight)),
      data_(data),
      layout_(shape_and_layout.layout == Layout::kNchw ? kernels::Layout::kNcs : kernels::Layout::kNsc),
      shape_(kernel_shape(shape_and_layout)),
      batch_mean_(at::empty_like(data.weight)),
      batch_mean_low_(at::empty_like(data.weight)),
      batch_std_(at::empty_like(data.weight)),
      r_(at::empty_like(data.weight)),
      d_(at::empty_like(data.weight)) {
  forward(Activation::kNone);
}

void OursInto::forward(Activation activation) {
  kernels::Forward<float> problem{};
  problem.layout = layout_;
  problem.shape = shape_;
  problem.groups = kernels::contiguous_groups(shape_.n, shape_.n);
  problem.activation = in_kernel(activation);
  problem.eps = kEps;
  problem.r_max = kRMax;
  problem.d_max = kDMax;
  problem.x = data_.x.data_ptr<float>();
  problem.weight = data_.weight.data_ptr<float>();
  problem.bias = data_.bias.data_ptr<float>();
  problem.running_mean = data_.running_mean.data_ptr<float>();
  problem.running_std = data_.running_std.data_ptr<float>();
  problem.y = output.data_ptr<float>();
  problem.batch_mean = batch_mean_.data_ptr<float>();
  problem.batch_mean_low = batch_mean_low_.data_ptr<float>();
  problem.batch_std = batch_std_.data_ptr<float>();
  problem.r = r_.data_ptr<float>();
  problem.d = d_.data_ptr<float>();
  kernels::forward(problem, on_torch_threads());
}

void OursInto::backward(Activation activation) {
  kernels::Backward<float> problem{};
  problem.layout = layout_;
  problem.shape = shape_;
  problem.groups = kernels::contiguous_groups(shape_.n, shape_.n);
  problem.activation = in_kernel(activation);
  problem.frozen = false;
  problem.x = data_.x.data_ptr<float>();
  problem.dy = data_.dy.data_ptr<float>();
  problem.weight = data_.weight.data_ptr<float>();
  problem.bias = data_.bias.data_ptr<float>();
  problem.batch_mean = batch_mean_.data_ptr<float>();
  problem.batch_mean_low = batch_mean_low_.data_ptr<float>();
  problem.batch_std = batch_std_.data_ptr<float>();
  problem.r = r_.data_ptr<float>();
  problem.d = d_.data_ptr<float>();
  problem.dx = input_gradient.data_ptr<float>();
  problem.dweight = dweight.data_ptr<float>();
  problem.dbias = dbias.data_ptr<float>();
  kernels::backward(problem, on_torch_threads());
}

void OursInto::inference(Activation activation) {
  kernels::Inference<float> problem{};
  problem.layout = layout_;
  problem.shape = shape_;
  problem.activation = in_kernel(activation);
  problem.x = data_.x.data_ptr<float>();
  problem.weight = data_.weight.data_ptr<float>();
  problem.bias = data_.bias.data_ptr<float>();
  problem.running_mean = data_.running_mean.data_ptr<float>();
  problem.running_std = data_.running_std.data_ptr<float>();
  problem.y = output.data_ptr<float>();
  kernels::inference(problem, on_torch_threads());
}

}  // namespace renorm::bench
