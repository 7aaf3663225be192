// The net of a convnet spec.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "models/blocks.h"
#include "models/convnet_spec.h"
#include "models/kinds.h"

namespace renorm::models {
namespace {

using Kind = ConvnetItem::Kind;

class ConvNet : public Classifier {
 public:
  ConvNet(std::vector<ConvnetItem> items, const InputShape& input, const MakeNorm& make_norm)
      : items_(std::move(items)) {
    int64_t channels = input.channels;
    for (const MapShape& shape : convnet_shapes(items_, {input.channels, input.height, input.width})) {
      const ConvnetItem& item = items_[convs_.size()];
      ConvNorm conv{nullptr};
      if (item.kind == Kind::kConvolution) {
        conv = ConvNorm(rectangle(channels, shape.channels, item.kernel, item.stride), make_norm);
        register_module(fmt::format("conv{}", ++count_), conv);
      }
      convs_.push_back(conv);
      channels = shape.channels;
    }
    classifier_ = register_module("classifier", linear_classifier(channels, input.classes));
  }

  Logits compute(const torch::Tensor& images) override {
    torch::Tensor x = images;
    for (size_t i = 0; i < items_.size(); ++i) x = apply(i, x);
    return {classify(classifier_, x), {}};
  }

 private:
  torch::Tensor apply(size_t i, const torch::Tensor& x) {
    switch (items_[i].kind) {
      case Kind::kConvolution:
        return convs_[i]->forward(x);
      case Kind::kMaxPool:
        return torch::max_pool2d(x, 2);
      case Kind::kAveragePool:
        return torch::avg_pool2d(x, 2);
      case Kind::kGlobalPool:
        break;
    }
    return global_average(x);
  }

  std::vector<ConvnetItem> items_;
  std::vector<ConvNorm> convs_;  // one per item; empty for pools
  int64_t count_ = 0;
  torch::nn::Linear classifier_{nullptr};
};

std::shared_ptr<Classifier> make_convnet(const Spec& spec, const InputShape& input,
                                         const MakeNorm& make_norm) {
  return std::make_shared<ConvNet>(parse_convnet(spec.value_or(convnet_recipe())), input, make_norm);
}

}  // namespace

Entry convnet_entry() {
  return {{"convnet", "convnet[:SPEC]", "Convolutions in a row, from a list", convnet_syntax(), "convnet",
           strokes_input(), kSmallImages, torch::MemoryFormat::Contiguous},
          /*min_side=*/1,
          [](const std::string& spec) { parse_convnet(spec); },
          make_convnet};
}

}  // namespace renorm::models
