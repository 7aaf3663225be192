#include "models/inception.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>

#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/text.h"
#include "models/kinds.h"

namespace renorm::models {
namespace {

using Pooling = InceptionBranch::Pooling;

ConvShape halving(int64_t in, int64_t out, int64_t padding) {
  return {in, out, {3, 3}, /*stride=*/2, {padding, padding}};
}

InceptionBranch plain(std::string name, std::vector<ConvShape> chain, std::vector<ConvShape> fan = {}) {
  return {std::move(name), Pooling::kNone, std::move(chain), std::move(fan)};
}

InceptionBranch average_pool(int64_t in, int64_t out) {
  return {"branch_pool", Pooling::kAverage, {square(in, out, 1)}, {}};
}

InceptionBranch max_pool() { return {"branch_pool", Pooling::kMax, {}, {}}; }

// The two ends of a branch of block E.
std::vector<ConvShape> crossed(int64_t in, int64_t out) {
  return {rectangle(in, out, {1, 3}), rectangle(in, out, {3, 1})};
}

}  // namespace

InceptionBlockImpl::InceptionBlockImpl(int64_t in, const std::vector<InceptionBranch>& branches,
                                       int64_t padding, const MakeNorm& make_norm)
    : padding_(padding) {
  for (const InceptionBranch& branch : branches) add(branch, in, make_norm);
}

void InceptionBlockImpl::add(const InceptionBranch& plan, int64_t in, const MakeNorm& make_norm) {
  Branch branch{plan.pooling, {}, {}};
  const bool alone = plan.chain.size() == 1 && plan.fan.empty();
  for (const ConvShape& shape : plan.chain) {
    const std::string name = alone ? plan.name : fmt::format("{}_{}", plan.name, branch.chain.size() + 1);
    branch.chain.push_back(register_module(name, ConvNorm(shape, make_norm)));
  }
  char letter = 'a';
  for (const ConvShape& shape : plan.fan) {
    const std::string name = fmt::format("{}_{}{}", plan.name, plan.chain.size() + 1, letter++);
    branch.fan.push_back(register_module(name, ConvNorm(shape, make_norm)));
    out_channels += shape.out;
  }
  if (plan.fan.empty()) out_channels += plan.chain.empty() ? in : plan.chain.back().out;
  branches_.push_back(std::move(branch));
}

torch::Tensor InceptionBlockImpl::pool(Pooling pooling, const torch::Tensor& x) const {
  switch (pooling) {
    case Pooling::kAverage:
      return torch::avg_pool2d(x, 3, /*stride=*/1, /*padding=*/1);
    case Pooling::kMax:
      return torch::max_pool2d(x, 3, /*stride=*/2, padding_);
    case Pooling::kNone:
      break;
  }
  return x;
}

torch::Tensor InceptionBlockImpl::forward(const torch::Tensor& x) {
  std::vector<torch::Tensor> outputs;
  for (Branch& branch : branches_) {
    torch::Tensor y = pool(branch.pooling, x);
    for (ConvNorm& conv : branch.chain) y = conv->forward(y);
    if (branch.fan.empty()) outputs.push_back(y);
    for (ConvNorm& conv : branch.fan) outputs.push_back(conv->forward(y));
  }
  return torch::cat(outputs, 1);
}

InceptionBlock inception_a(int64_t in, const InceptionAWidths& widths, const MakeNorm& make_norm) {
  const int64_t twice = widths.out_3x3dbl;
  return InceptionBlock(
      in,
      std::vector<InceptionBranch>{
          plain("branch1x1", {square(in, widths.out_1x1, 1)}),
          plain("branch5x5", {square(in, widths.inner_5x5, 1), square(widths.inner_5x5, widths.out_5x5, 5)}),
          plain("branch3x3dbl", {square(in, widths.inner_3x3dbl, 1), square(widths.inner_3x3dbl, twice, 3),
                                 square(twice, twice, 3)}),
          average_pool(in, widths.out_pool)},
      /*padding=*/0, make_norm);
}

InceptionBlock inception_b(int64_t in, const InceptionBWidths& widths, int64_t padding,
                           const MakeNorm& make_norm) {
  const int64_t twice = widths.out_3x3dbl;
  return InceptionBlock(
      in,
      std::vector<InceptionBranch>{
          plain("branch3x3", {halving(in, widths.out_3x3, padding)}),
          plain("branch3x3dbl", {square(in, widths.inner_3x3dbl, 1), square(widths.inner_3x3dbl, twice, 3),
                                 halving(twice, twice, padding)}),
          max_pool()},
      padding, make_norm);
}

InceptionBlock inception_c(int64_t in, const InceptionCWidths& widths, const MakeNorm& make_norm) {
  const int64_t inner = widths.inner_7x7;
  const int64_t out = widths.out;
  return InceptionBlock(
      in,
      std::vector<InceptionBranch>{
          plain("branch1x1", {square(in, out, 1)}),
          plain("branch7x7",
                {square(in, inner, 1), rectangle(inner, inner, {1, 7}), rectangle(inner, out, {7, 1})}),
          plain("branch7x7dbl",
                {square(in, inner, 1), rectangle(inner, inner, {7, 1}), rectangle(inner, inner, {1, 7}),
                 rectangle(inner, inner, {7, 1}), rectangle(inner, out, {1, 7})}),
          average_pool(in, out)},
      /*padding=*/0, make_norm);
}

InceptionBlock inception_d(int64_t in, const InceptionDWidths& widths, int64_t padding,
                           const MakeNorm& make_norm) {
  const int64_t seven = widths.out_7x7x3;
  return InceptionBlock(
      in,
      std::vector<InceptionBranch>{
          plain("branch3x3",
                {square(in, widths.inner_3x3, 1), halving(widths.inner_3x3, widths.out_3x3, padding)}),
          plain("branch7x7x3", {square(in, seven, 1), rectangle(seven, seven, {1, 7}),
                                rectangle(seven, seven, {7, 1}), halving(seven, seven, padding)}),
          max_pool()},
      padding, make_norm);
}

InceptionBlock inception_e(int64_t in, const InceptionEWidths& widths, const MakeNorm& make_norm) {
  const int64_t out = widths.out_3x3;
  return InceptionBlock(
      in,
      std::vector<InceptionBranch>{
          plain("branch1x1", {square(in, widths.out_1x1, 1)}),
          plain("branch3x3", {square(in, out, 1)}, crossed(out, out)),
          plain("branch3x3dbl", {square(in, widths.inner_3x3dbl, 1), square(widths.inner_3x3dbl, out, 3)},
                crossed(out, out)),
          average_pool(in, widths.out_pool)},
      /*padding=*/0, make_norm);
}

namespace {

constexpr const char* kV3 = "inception-v3";
constexpr const char* kAuxiliary = "aux";
constexpr int64_t kMinSide = 75;  // leaves one pixel for the last blocks
// The auxiliary head's 5x5 convolution needs the map that 299 pixels give.
constexpr int64_t kMinSideWithAuxiliary = 299;

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
    logits.main = classify(fc_, drop(global_average(through(mixed_7_, x))));
    return logits;
  }

 private:
  // Dropout by half: one random bit per value.
  torch::Tensor drop(const torch::Tensor& x) {
    const int64_t images = x.size(0);
    if (!is_training() || static_cast<int64_t>(image_seeds.size()) < images) return dropout_->forward(x);
    torch::Tensor factor = torch::empty({images, x.size(1)}, torch::kFloat);
    auto* value = factor.data_ptr<float>();
    for (int64_t i = 0; i < images; ++i) {
      RandomStream stream(image_seeds[static_cast<size_t>(i)], Purpose::kDropout);
      uint64_t bits = 0;
      for (int64_t j = 0; j < x.size(1); ++j, bits >>= 1) {
        if (j % 64 == 0) bits = stream.bits();
        *value++ = (bits & 1) != 0 ? 2.0F : 0.0F;
      }
    }
    return x * factor.to(x.scalar_type()).view_as(x);
  }

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

void check_v3_spec(const std::string& spec) {
  if (spec == kAuxiliary) return;
  throw UsageError(
      fmt::format("the model {0} has one option, {0}:{1} (with the auxiliary head), got '{0}:{2}'", kV3,
                  kAuxiliary, printable(spec)));
}

std::shared_ptr<Classifier> make_inception_v3(const Spec& spec, const InputShape& input,
                                              const MakeNorm& make_norm) {
  if (spec) {
    const std::string name = fmt::format("{}:{}", kV3, kAuxiliary);
    check_range(name, "a height", input.height, kMinSideWithAuxiliary, kMaxPerSide);
    check_range(name, "a width", input.width, kMinSideWithAuxiliary, kMaxPerSide);
  }
  return std::make_shared<InceptionV3>(spec.has_value(), input, make_norm);
}

constexpr const char* kV3Details =
    "As published, in torchvision's layout: five convolutions and two max poolings, three blocks A, a\n"
    "reduction B, four blocks C, a reduction D, two blocks E, mean pooling, dropout 0.5 and a linear\n"
    "classifier. Images need 75 pixels per side, and 299 with the auxiliary head.\n"
    "  inception-v3:aux   with the auxiliary head, a second classifier of the last map of 17x17, used\n"
    "                     in training only\n";

// inception-small. Unpadded reductions would leave a single pixel of a 20x20 image.
constexpr int64_t kSmallPadding = 1;

// Widths are multiples of 16, the floats per vector of the widest instruction set: 24 channels would cost as
// much as 32.
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
    channels = add("b", inception_b(channels, {32, 16, 32}, kSmallPadding, make_norm));
    channels = add("c", inception_c(channels, {16, 32}, make_norm));
    channels = add("d", inception_d(channels, {32, 48, 32}, kSmallPadding, make_norm));
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

constexpr const char* kSmallDetails =
    "A stem of three 3x3 convolutions, the first of stride 2; one block each of the kinds A (35x35 in\n"
    "Inception v3), B (reduction), C (17x17), D (reduction) and E (8x8); mean pooling; a linear classifier.\n"
    "Reductions are padded, so that small images do not vanish.\n";

}  // namespace

Entry inception_v3_entry() {
  return {{kV3,
           "inception-v3[:aux]",
           "Inception v3, the net of the paper, for images of 299 pixels",
           kV3Details,
           kV3,
           {3, 299, 299, 1000},
           299,
           torch::MemoryFormat::ChannelsLast},
          kMinSide,
          check_v3_spec,
          make_inception_v3};
}

Entry inception_small_entry() {
  return {
      {"inception-small", "inception-small",
       "The five Inception v3 blocks with few filters, for images of about 20 to 40 pixels", kSmallDetails,
       "inception-small", strokes_input(), kSmallImages, torch::MemoryFormat::ChannelsLast},
      /*min_side=*/8,
      /*check_spec=*/nullptr,
      make_inception_small};
}

}  // namespace renorm::models
