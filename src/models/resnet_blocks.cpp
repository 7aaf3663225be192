#include "models/resnet_blocks.h"

#include <fmt/format.h>

namespace renorm::models {
namespace {

torch::nn::Sequential stage(const std::vector<ConvShape>& first, const std::vector<ConvShape>& next,
                            int64_t blocks, const MakeNorm& make_norm) {
  torch::nn::Sequential result;
  for (int64_t i = 0; i < blocks; ++i) result->push_back(Residual(i == 0 ? first : next, make_norm));
  return result;
}

}  // namespace

ResidualImpl::ResidualImpl(const std::vector<ConvShape>& body, const MakeNorm& make_norm) {
  int64_t stride = 1;
  for (const ConvShape& shape : body) {
    const bool last = body_.size() + 1 == body.size();
    const ConvNorm conv(shape, make_norm, last ? Activation::kNone : Activation::kRelu);
    body_.push_back(register_module(fmt::format("conv{}", body_.size() + 1), conv));
    stride *= shape.stride;
  }
  const int64_t in = body.front().in;
  const int64_t out = body.back().out;
  if (stride == 1 && in == out) return;
  shortcut_ = register_module("shortcut", ConvNorm(square(in, out, 1, stride), make_norm, Activation::kNone));
}

torch::Tensor ResidualImpl::forward(const torch::Tensor& x) {
  torch::Tensor y = x;
  for (ConvNorm& conv : body_) y = conv->forward(y);
  // In place: a norm's backward needs its input, not its output.
  y += shortcut_.is_empty() ? x : shortcut_->forward(x);
  return y.relu_();
}

std::vector<ConvShape> basic_body(int64_t in, int64_t out, int64_t stride) {
  return {square(in, out, 3, stride), square(out, out, 3)};
}

std::vector<ConvShape> bottleneck_body(int64_t in, int64_t inner, int64_t out, int64_t stride) {
  return {square(in, inner, 1), square(inner, inner, 3, stride), square(inner, out, 1)};
}

torch::nn::Sequential basic_stage(int64_t in, int64_t width, int64_t blocks, int64_t stride,
                                  const MakeNorm& make_norm) {
  return stage(basic_body(in, width, stride), basic_body(width, width, 1), blocks, make_norm);
}

torch::nn::Sequential bottleneck_stage(int64_t in, int64_t width, int64_t blocks, int64_t stride,
                                       const MakeNorm& make_norm) {
  const int64_t out = kBottleneckExpansion * width;
  return stage(bottleneck_body(in, width, out, stride), bottleneck_body(out, width, out, 1), blocks,
               make_norm);
}

}  // namespace renorm::models
