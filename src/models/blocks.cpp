#include "models/blocks.h"

#include <ATen/Functions.h>
#include <torch/nn/init.h>

#include <typeinfo>

#include "models/weight_limit.h"

namespace renorm::models {

ConvShape rectangle(int64_t in, int64_t out, std::array<int64_t, 2> kernel, int64_t stride) {
  return {in, out, kernel, stride, {kernel[0] / 2, kernel[1] / 2}};
}

ConvShape square(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return rectangle(in, out, {kernel, kernel}, stride);
}

namespace {

const ConvShape& counted(const ConvShape& shape) {
  count_weights(shape.in * shape.out * shape.kernel[0] * shape.kernel[1]);
  return shape;
}

}  // namespace

ConvNormImpl::ConvNormImpl(const ConvShape& shape, const MakeNorm& make_norm, Activation activation)
    : norm(make_norm(counted(shape).out, activation)), shape_(shape) {
  const auto options = torch::nn::Conv2dOptions(shape.in, shape.out, {shape.kernel[0], shape.kernel[1]})
                           .stride(shape.stride)
                           .padding({shape.padding[0], shape.padding[1]})
                           .bias(false);
  conv = register_module("conv", torch::nn::Conv2d(options));
  register_module("norm", norm.ptr());
  torch::nn::init::kaiming_normal_(conv->weight, /*a=*/0.0, torch::kFanIn, torch::kReLU);
}

torch::Tensor ConvNormImpl::convolve(const torch::Tensor& x) {
  const auto rounded = [&x](const torch::Tensor& tensor) {
    return tensor.defined() ? tensor.to(x.scalar_type()) : tensor;
  };
  // A dense layer. A convolution of one pixel takes LibTorch two to four times as long.
  if (shape_.kernel[0] * shape_.kernel[1] == 1 && x.size(2) == 1 && x.size(3) == 1) {
    return torch::linear(x.flatten(1), rounded(conv->weight).flatten(1), rounded(conv->bias))
        .unsqueeze(2)
        .unsqueeze(3);
  }
  return torch::conv2d(x, rounded(conv->weight), rounded(conv->bias), shape_.stride,
                       {shape_.padding[0], shape_.padding[1]});
}

torch::Tensor ConvNormImpl::forward(const torch::Tensor& x) { return norm.forward(convolve(x)); }

torch::Tensor ConvNormImpl::forward_residual(const torch::Tensor& x, const torch::Tensor& residual) {
  torch::Tensor y = convolve(x);
  torch::nn::Module& module = *norm.ptr();
  if (typeid(module) == typeid(BatchRenorm2dImpl)) {
    return dynamic_cast<BatchRenorm2dImpl&>(module).forward_residual(y, residual, Activation::kRelu);
  }
  // In place: a norm's backward needs its input, not its output.
  y = norm.forward(y);
  y += residual;
  return y.relu_();
}

torch::Tensor global_average(const torch::Tensor& x) { return x.mean({2, 3}, /*keepdim=*/true); }

torch::nn::Linear linear_classifier(int64_t in, int64_t classes) {
  count_weights(in * classes);
  torch::nn::Linear linear(in, classes);
  torch::nn::init::normal_(linear->weight, 0.0, 0.01);
  torch::nn::init::zeros_(linear->bias);
  return linear;
}

torch::Tensor classify(torch::nn::Linear& classifier, const torch::Tensor& features) {
  return classifier->forward(features.flatten(1).to(classifier->weight.scalar_type()));
}

}  // namespace renorm::models
