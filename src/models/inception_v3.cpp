// Inception v3 as published (Szegedy et al., "Rethinking the Inception Architecture for Computer Vision"),
// laid out and named as torchvision's is.
#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/modules/dropout.h>

#include <vector>

#include "base/errors.h"
#include "base/text.h"
#include "models/inception_blocks.h"
#include "models/kinds.h"

namespace renorm::models {
namespace {

constexpr const char* kName = "inception-v3";
constexpr const char* kAuxiliary = "aux";
constexpr int64_t kLeastSide = 75;  // one pixel is left for the last blocks
// The auxiliary head's 5x5 convolution needs the map that 299 pixels give.
constexpr int64_t kLeastSideWithAuxiliary = 299;

ConvShape unpadded(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  return {in, out, {kernel, kernel}, stride, {0, 0}};
}

// A classifier of the map in the middle of the net.
class AuxiliaryHeadImpl : public torch::nn::Module {
 public:
  AuxiliaryHeadImpl(int64_t in, int64_t classes, const MakeNorm& make_norm)
      : conv0_(register_module("conv0", ConvNorm(unpadded(in, 128, 1), make_norm))),
        conv1_(register_module("conv1", ConvNorm(unpadded(128, 768, 5), make_norm))),
        fc_(register_module("fc", linear_classifier(768, classes))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor pooled = torch::avg_pool2d(x, 5, /*stride=*/3);
    return classify(fc_, global_average(conv1_->forward(conv0_->forward(pooled))));
  }

 private:
  ConvNorm conv0_;
  ConvNorm conv1_;
  torch::nn::Linear fc_;
};
TORCH_MODULE(AuxiliaryHead);

class InceptionV3 : public Classifier {
 public:
  InceptionV3(bool auxiliary, const InputShape& input, const MakeNorm& make_norm) {
    add_stem(input.channels, make_norm);
    add_mixed_5_and_6(make_norm);
    if (auxiliary) {
      auxiliary_ = register_module("AuxLogits", AuxiliaryHead(768, input.classes, make_norm));
    }
    add(&mixed_7_, "Mixed_7a", inception_d(768, {192, 320, 192}, /*padding=*/0, make_norm));
    add(&mixed_7_, "Mixed_7b", inception_e(1280, {320, 384, 448, 192}, make_norm));
    add(&mixed_7_, "Mixed_7c", inception_e(2048, {320, 384, 448, 192}, make_norm));
    dropout_ = register_module("dropout", torch::nn::Dropout(0.5));
    fc_ = register_module("fc", linear_classifier(2048, input.classes));
  }

  Logits compute(const torch::Tensor& images) override {
    torch::Tensor x = torch::max_pool2d(through(stem_1_, images), 3, /*stride=*/2);
    x = torch::max_pool2d(through(stem_2_, x), 3, /*stride=*/2);
    x = through(mixed_5_and_6_, x);
    Logits logits;
    if (!auxiliary_.is_empty() && is_training()) logits.auxiliary = auxiliary_->forward(x);
    logits.main = classify(fc_, dropout_->forward(global_average(through(mixed_7_, x))));
    return logits;
  }

 private:
  template <typename Layer>
  void add(std::vector<Layer>* layers, const char* name, const Layer& layer) {
    layers->push_back(register_module(name, layer));
  }

  template <typename Layer>
  static torch::Tensor through(std::vector<Layer>& layers, torch::Tensor x) {
    for (Layer& layer : layers) x = layer->forward(x);
    return x;
  }

  void add_stem(int64_t channels, const MakeNorm& make_norm) {
    add(&stem_1_, "Conv2d_1a_3x3", ConvNorm(unpadded(channels, 32, 3, 2), make_norm));
    add(&stem_1_, "Conv2d_2a_3x3", ConvNorm(unpadded(32, 32, 3), make_norm));
    add(&stem_1_, "Conv2d_2b_3x3", ConvNorm(square(32, 64, 3), make_norm));
    add(&stem_2_, "Conv2d_3b_1x1", ConvNorm(unpadded(64, 80, 1), make_norm));
    add(&stem_2_, "Conv2d_4a_3x3", ConvNorm(unpadded(80, 192, 3), make_norm));
  }

  void add_mixed_5_and_6(const MakeNorm& make_norm) {
    add(&mixed_5_and_6_, "Mixed_5b", inception_a(192, {64, 48, 64, 64, 96, 32}, make_norm));
    add(&mixed_5_and_6_, "Mixed_5c", inception_a(256, {64, 48, 64, 64, 96, 64}, make_norm));
    add(&mixed_5_and_6_, "Mixed_5d", inception_a(288, {64, 48, 64, 64, 96, 64}, make_norm));
    add(&mixed_5_and_6_, "Mixed_6a", inception_b(288, {384, 64, 96}, /*padding=*/0, make_norm));
    add(&mixed_5_and_6_, "Mixed_6b", inception_c(768, {128, 192}, make_norm));
    add(&mixed_5_and_6_, "Mixed_6c", inception_c(768, {160, 192}, make_norm));
    add(&mixed_5_and_6_, "Mixed_6d", inception_c(768, {160, 192}, make_norm));
    add(&mixed_5_and_6_, "Mixed_6e", inception_c(768, {192, 192}, make_norm));
  }

  std::vector<ConvNorm> stem_1_;  // max pooling follows this and the next
  std::vector<ConvNorm> stem_2_;
  std::vector<InceptionBlock> mixed_5_and_6_;
  std::vector<InceptionBlock> mixed_7_;
  AuxiliaryHead auxiliary_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::Linear fc_{nullptr};
};

void check_spec(const std::string& spec) {
  if (spec == kAuxiliary) return;
  throw UsageError(
      fmt::format("{0} takes nothing after its name or {0}:{1} (with the auxiliary head), got '{0}:{2}'",
                  kName, kAuxiliary, printable(spec)));
}

std::shared_ptr<Classifier> make_inception_v3(const Spec& spec, const InputShape& input,
                                              const MakeNorm& make_norm) {
  if (spec) {
    const std::string name = fmt::format("{}:{}", kName, kAuxiliary);
    check_range(name, "a height", input.height, kLeastSideWithAuxiliary, kMostPerSide);
    check_range(name, "a width", input.width, kLeastSideWithAuxiliary, kMostPerSide);
  }
  return std::make_shared<InceptionV3>(spec.has_value(), input, make_norm);
}

constexpr const char* kDetails =
    "As published and laid out as torchvision's: five convolutions and two max poolings, three blocks A, a\n"
    "reduction B, four blocks C, a reduction D, two blocks E, mean pooling, dropout 0.5 and a linear\n"
    "classifier. Images need 75 pixels a side, and 299 with the auxiliary head.\n"
    "  inception-v3:aux   with the auxiliary head, a second classifier of the last map of 17x17, which\n"
    "                     computes in training only\n";

}  // namespace

Entry inception_v3_entry() {
  return {{kName,
           "inception-v3[:aux]",
           "Inception v3, the net of the paper, for images of 299 pixels",
           kDetails,
           kName,
           {3, 299, 299, 1000},
           299,
           torch::MemoryFormat::ChannelsLast},
          kLeastSide,
          check_spec,
          make_inception_v3};
}

}  // namespace renorm::models
