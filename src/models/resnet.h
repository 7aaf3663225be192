// Residual blocks (He et al., "Deep Residual Learning for Image Recognition"), in torchvision's layout.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "models/blocks.h"

namespace renorm::models {

// relu(body(x) + shortcut(x)). The body is a chain of convolutions, each with its norm and, except the last,
// its ReLU. The shortcut is x itself, or a 1x1 convolution and a norm where channels or size change.
class ResidualImpl : public torch::nn::Module {
 public:
  ResidualImpl(const std::vector<ConvShape>& body, const MakeNorm& make_norm);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  std::vector<ConvNorm> body_;
  ConvNorm shortcut_{nullptr};
};
TORCH_MODULE(Residual);

// Two 3x3 convolutions, the first with the stride (ResNet-18 and -34).
std::vector<ConvShape> basic_body(int64_t in, int64_t out, int64_t stride);
// 1x1, 3x3 with the stride, 1x1 (ResNet-50 and deeper, the stride where torchvision puts it).
std::vector<ConvShape> bottleneck_body(int64_t in, int64_t inner, int64_t out, int64_t stride);

// `blocks` blocks, the first with the stride. Basic blocks have `width` output channels, bottlenecks four
// times as many.
constexpr int64_t kBottleneckExpansion = 4;
torch::nn::Sequential basic_stage(int64_t in, int64_t width, int64_t blocks, int64_t stride,
                                  const MakeNorm& make_norm);
torch::nn::Sequential bottleneck_stage(int64_t in, int64_t width, int64_t blocks, int64_t stride,
                                       const MakeNorm& make_norm);

}  // namespace renorm::models
