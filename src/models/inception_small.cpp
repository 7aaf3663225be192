// The blocks of Inception v3 with few filters, for small images.
#include <torch/nn/modules/container/sequential.h>

#include "models/inception_blocks.h"
#include "models/kinds.h"

namespace renorm::models {
namespace {

// Unpadded reductions would leave a single pixel of a 20x20 image.
constexpr int64_t kPadding = 1;

// Widths are multiples of 16, the floats of the widest vectors: 24 channels would cost what 32 do.

class InceptionSmall : public Classifier {
 public:
  InceptionSmall(const InputShape& input, const MakeNorm& make_norm)
      : stem_(ConvNorm(square(input.channels, 16, 3, 2), make_norm), ConvNorm(square(16, 16, 3), make_norm),
              ConvNorm(square(16, 32, 3), make_norm)) {
    register_module("stem", stem_);
    const auto add = [this](const char* name, const InceptionBlock& block) {
      mixed_->push_back(name, block);
      return block->out_channels;
    };
    int64_t channels = add("a", inception_a(32, {16, 16, 16, 16, 16, 16}, make_norm));
    channels = add("b", inception_b(channels, {32, 16, 32}, kPadding, make_norm));
    channels = add("c", inception_c(channels, {16, 32}, make_norm));
    channels = add("d", inception_d(channels, {32, 48, 32}, kPadding, make_norm));
    channels = add("e", inception_e(channels, {64, 64, 64, 32}, make_norm));
    register_module("mixed", mixed_);
    classifier_ = register_module("classifier", linear_classifier(channels, input.classes));
  }

  Logits compute(const torch::Tensor& images) override {
    return {classify(classifier_, global_average(mixed_->forward(stem_->forward(images)))), {}};
  }

 private:
  torch::nn::Sequential stem_;
  torch::nn::Sequential mixed_;
  torch::nn::Linear classifier_{nullptr};
};

std::shared_ptr<Classifier> make_inception_small(const Spec& /*spec*/, const InputShape& input,
                                                 const MakeNorm& make_norm) {
  return std::make_shared<InceptionSmall>(input, make_norm);
}

constexpr const char* kDetails =
    "A stem of three 3x3 convolutions, the first of stride 2; one block each of the kinds A (35x35 in\n"
    "Inception v3), B (reduction), C (17x17), D (reduction) and E (8x8); mean pooling; a linear classifier.\n"
    "Reductions are padded, so that small images have something left.\n";

}  // namespace

Entry inception_small_entry() {
  return {{"inception-small", "inception-small",
           "The five Inception v3 blocks with few filters, for images of about 20 to 40 pixels", kDetails,
           "inception-small", strokes_input(), kSmallPictures, torch::MemoryFormat::ChannelsLast},
          /*least_side=*/8,
          /*check_spec=*/nullptr,
          make_inception_small};
}

}  // namespace renorm::models
