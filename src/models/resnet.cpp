// ResNet-18 and ResNet-50 (He et al., "Deep Residual Learning for Image Recognition"), laid out as
// torchvision's.
#include <ATen/Functions.h>

#include <array>

#include "models/kinds.h"
#include "models/resnet_blocks.h"

namespace renorm::models {
namespace {

constexpr int64_t kStemWidth = 64;

using Blocks = std::array<int64_t, 4>;  // of each stage
using MakeStage = torch::nn::Sequential (*)(int64_t in, int64_t width, int64_t blocks, int64_t stride,
                                            const MakeNorm& make_norm);

class Resnet : public Classifier {
 public:
  // A stage of width w puts out `expansion` * w channels.
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
    "512, 1,024 and 2,048 channels, all but the first of stride 2, which the 3x3 convolution has; mean\n"
    "pooling; a linear classifier. As torchvision's.\n";

Entry entry_of(const char* name, const char* help, const char* details,
               std::shared_ptr<Classifier> (*make)(const Spec&, const InputShape&, const MakeNorm&)) {
  return {{name, name, help, details, name, {3, 224, 224, 1000}, 224, torch::MemoryFormat::ChannelsLast},
          /*least_side=*/32,
          /*check_spec=*/nullptr,
          make};
}

}  // namespace

Entry resnet18_entry() {
  return entry_of("resnet18", "ResNet-18, eight basic residual blocks, for images of 224 pixels",
                  kBasicDetails, make_resnet18);
}

Entry resnet50_entry() {
  return entry_of("resnet50", "ResNet-50, sixteen bottleneck blocks, for images of 224 pixels",
                  kBottleneckDetails, make_resnet50);
}

}  // namespace renorm::models
