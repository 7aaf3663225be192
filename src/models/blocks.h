// The building blocks of the models.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <array>
#include <cstdint>

#include "models/norm.h"

namespace renorm::models {

// Pairs are height, width.
struct ConvShape {
  int64_t in;
  int64_t out;
  std::array<int64_t, 2> kernel = {3, 3};
  int64_t stride = 1;
  std::array<int64_t, 2> padding = {1, 1};
};
// Convolutions that keep the size at stride 1; kernels are odd.
ConvShape rectangle(int64_t in, int64_t out, std::array<int64_t, 2> kernel, int64_t stride = 1);
ConvShape square(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1);

// Convolution without bias, norm and, by default, the ReLU (inside the norm). Initial weights are normal with
// variance 2 / fan_in (He's rule; fan_in = input channels x kernel area), drawn from LibTorch's default
// generator. The convolution computes in the input's dtype, with the weights rounded to it.
class ConvNormImpl : public torch::nn::Module {
 public:
  ConvNormImpl(const ConvShape& shape, const MakeNorm& make_norm, Activation activation = Activation::kRelu);
  torch::Tensor forward(const torch::Tensor& x);
  // relu(norm(conv(x)) + residual) for a unit without activation. Batch Renorm computes it in one pass; other
  // norms, also subclasses of it, are called by their forward.
  torch::Tensor forward_residual(const torch::Tensor& x, const torch::Tensor& residual);

  torch::nn::Conv2d conv{nullptr};
  torch::nn::AnyModule norm;

 private:
  torch::Tensor convolve(const torch::Tensor& x);

  ConvShape shape_;
};
TORCH_MODULE(ConvNorm);

// [n, c, h, w] -> [n, c, 1, 1].
torch::Tensor global_average(const torch::Tensor& x);

// The last layer. Initial weights are normal with standard deviation 0.01, the bias is 0: a new model gives
// every class nearly the same probability, for any number of classes.
torch::nn::Linear linear_classifier(int64_t in, int64_t classes);
// [n, c, h, w] of any dtype -> logits in the classifier's.
torch::Tensor classify(torch::nn::Linear& classifier, const torch::Tensor& features);

}  // namespace renorm::models
