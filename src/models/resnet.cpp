#include "models/resnet.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <array>

#include "models/kinds.h"

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
  for (size_t i = 0; i + 1 < body_.size(); ++i) y = body_[i]->forward(y);
  return body_.back()->forward_residual(y, shortcut_.is_empty() ? x : shortcut_->forward(x));
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

namespace {

constexpr int64_t kStemWidth = 64;

using Blocks = std::array<int64_t, 4>;  // of each stage
using MakeStage = torch::nn::Sequential (*)(int64_t in, int64_t width, int64_t blocks, int64_t stride,
                                            const MakeNorm& make_norm);

class Resnet : public Classifier {
 public:
  // A stage of width w has `expansion` * w output channels.
  Resnet(const Blocks& blocks, MakeStage make_stage, int64_t expansion, const InputShape& input,
         const MakeNorm& make_norm)
      : stem_(register_module("stem", ConvNorm(square(input.channels, kStemWidth, 7, 2), make_norm))) {
    int64_t in = kStemWidth;
    int64_t width = kStemWidth;
    for (const int64_t count : blocks) {
      const bool first = stages_.empty();
      const auto stage = make_stage(in, width, count, first ? 1 : 2, make_norm);
      stages_.push_back(register_module("layer" + std::to_string(stages_.size() + 1), stage));
      in = expansion * width;
      width *= 2;
    }
    classifier_ = register_module("classifier", linear_classifier(in, input.classes));
  }

  Logits compute(const torch::Tensor& images) override {
    torch::Tensor x = torch::max_pool2d(stem_->forward(images), 3, /*stride=*/2, /*padding=*/1);
    for (torch::nn::Sequential& stage : stages_) x = stage->forward(x);
    return {classify(classifier_, global_average(x)), {}};
  }

 private:
  ConvNorm stem_;
  std::vector<torch::nn::Sequential> stages_;
  torch::nn::Linear classifier_{nullptr};
};

std::shared_ptr<Classifier> make_resnet18(const Spec& /*spec*/, const InputShape& input,
                                          const MakeNorm& make_norm) {
  return std::make_shared<Resnet>(Blocks{2, 2, 2, 2}, basic_stage, /*expansion=*/1, input, make_norm);
}

std::shared_ptr<Classifier> make_resnet50(const Spec& /*spec*/, const InputShape& input,
                                          const MakeNorm& make_norm) {
  return std::make_shared<Resnet>(Blocks{3, 4, 6, 3}, bottleneck_stage, kBottleneckExpansion, input,
                                  make_norm);
}

constexpr const char* kBasicDetails =
    "A 7x7 convolution of stride 2 and max pooling; four stages of two basic blocks with 64, 128, 256 and\n"
    "512 channels, all but the first of stride 2; mean pooling; a linear classifier. As torchvision's.\n";
constexpr const char* kBottleneckDetails =
    "A 7x7 convolution of stride 2 and max pooling; four stages of 3, 4, 6 and 3 bottleneck blocks with "
    "256,\n"
    "512, 1,024 and 2,048 channels, all but the first of stride 2, in the 3x3 convolution; mean\n"
    "pooling; a linear classifier. As torchvision's.\n";

Entry entry_of(const char* name, const char* help, const char* details,
               std::shared_ptr<Classifier> (*make)(const Spec&, const InputShape&, const MakeNorm&)) {
  return {{name, name, help, details, name, {3, 224, 224, 1000}, 224, torch::MemoryFormat::ChannelsLast},
          /*min_side=*/32,
          /*check_spec=*/nullptr,
          make};
}

constexpr int64_t kSmallBlocksPerStage = 2;

class ResnetSmall : public Classifier {
 public:
  ResnetSmall(const InputShape& input, const MakeNorm& make_norm)
      : stem_(register_module("stem", ConvNorm(square(input.channels, 16, 3), make_norm))),
        layer1_(register_module("layer1", basic_stage(16, 16, kSmallBlocksPerStage, 1, make_norm))),
        layer2_(register_module("layer2", basic_stage(16, 32, kSmallBlocksPerStage, 2, make_norm))),
        layer3_(register_module("layer3", basic_stage(32, 64, kSmallBlocksPerStage, 2, make_norm))),
        classifier_(register_module("classifier", linear_classifier(64, input.classes))) {}

  Logits compute(const torch::Tensor& images) override {
    torch::Tensor x = layer1_->forward(stem_->forward(images));
    x = layer3_->forward(layer2_->forward(x));
    return {classify(classifier_, global_average(x)), {}};
  }

 private:
  ConvNorm stem_;
  torch::nn::Sequential layer1_;
  torch::nn::Sequential layer2_;
  torch::nn::Sequential layer3_;
  torch::nn::Linear classifier_;
};

std::shared_ptr<Classifier> make_resnet_small(const Spec& /*spec*/, const InputShape& input,
                                              const MakeNorm& make_norm) {
  return std::make_shared<ResnetSmall>(input, make_norm);
}

constexpr const char* kSmallDetails =
    "A 3x3 convolution; three stages of two basic residual blocks with 16, 32 and 64 channels, the second\n"
    "and third stage of stride 2; mean pooling; a linear classifier. The second norm of a block has no\n"
    "ReLU; where the shape changes, the shortcut is a 1x1 convolution and a norm.\n";

}  // namespace

Entry resnet18_entry() {
  return entry_of("resnet18", "ResNet-18, eight basic residual blocks, for images of 224 pixels",
                  kBasicDetails, make_resnet18);
}

Entry resnet50_entry() {
  return entry_of("resnet50", "ResNet-50, sixteen bottleneck blocks, for images of 224 pixels",
                  kBottleneckDetails, make_resnet50);
}

Entry resnet_small_entry() {
  return {{"resnet-small", "resnet-small", "Six residual blocks of 16, 32 and 64 channels", kSmallDetails,
           "resnet-small", strokes_input(), kSmallImages, torch::MemoryFormat::ChannelsLast},
          /*min_side=*/8,
          /*check_spec=*/nullptr,
          make_resnet_small};
}

}  // namespace renorm::models
