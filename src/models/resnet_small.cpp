// Three stages of basic residual blocks, for small images.
#include "models/kinds.h"
#include "models/resnet_blocks.h"

namespace renorm::models {
namespace {

constexpr int64_t kBlocksAStage = 2;

class ResnetSmall : public Classifier {
 public:
  ResnetSmall(const InputShape& input, const MakeNorm& make_norm)
      : stem_(register_module("stem", ConvNorm(square(input.channels, 16, 3), make_norm))),
        layer1_(register_module("layer1", basic_stage(16, 16, kBlocksAStage, 1, make_norm))),
        layer2_(register_module("layer2", basic_stage(16, 32, kBlocksAStage, 2, make_norm))),
        layer3_(register_module("layer3", basic_stage(32, 64, kBlocksAStage, 2, make_norm))),
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

constexpr const char* kDetails =
    "A 3x3 convolution; three stages of two basic residual blocks with 16, 32 and 64 channels, the second\n"
    "and third stage of stride 2; mean pooling; a linear classifier. The second norm of a block has no\n"
    "ReLU; where the shape changes, the shortcut is a 1x1 convolution and a norm.\n";

}  // namespace

Entry resnet_small_entry() {
  return {{"resnet-small", "resnet-small", "Six residual blocks of 16, 32 and 64 channels", kDetails,
           "resnet-small", strokes_input(), kSmallPictures, torch::MemoryFormat::ChannelsLast},
          /*least_side=*/8,
          /*check_spec=*/nullptr,
          make_resnet_small};
}

}  // namespace renorm::models
