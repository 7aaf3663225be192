// The nets of convnet and mlp specs.
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

  std::vector<torch::Tensor> dense_norm_biases() override {
    std::vector<torch::Tensor> biases;
    bool is_dense = false;
    for (size_t i = 0; i < items_.size(); ++i) {
      is_dense = is_dense || items_[i].kind == Kind::kGlobalPool || items_[i].kind == Kind::kFlat;
      if (!is_dense || convs_[i].is_empty()) continue;
      const auto parameters = convs_[i]->norm.ptr()->named_parameters(/*recurse=*/false);
      if (const torch::Tensor* bias = parameters.find("bias")) biases.push_back(*bias);
    }
    return biases;
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
        return global_average(x);
      case Kind::kFlat:
        break;
    }
    return x.flatten(1).unsqueeze(2).unsqueeze(3);
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

std::shared_ptr<Classifier> make_mlp(const Spec& spec, const InputShape& input, const MakeNorm& make_norm) {
  return std::make_shared<ConvNet>(parse_mlp(spec.value_or(mlp_recipe())), input, make_norm);
}

}  // namespace

Entry convnet_entry() {
  return {{"convnet", "convnet[:SPEC]", "Convolutions in a row, from a list", convnet_syntax(), "convnet",
           strokes_input(), kSmallImages, torch::MemoryFormat::Contiguous},
          /*min_side=*/1,
          [](const std::string& spec) { parse_convnet(spec); },
          make_convnet};
}

Entry mlp_entry() {
  return {{"mlp", "mlp[:WIDTHS]", "Dense layers on the pixels",
           fmt::format("WIDTHS is a list of numbers: a dense layer, norm and ReLU each. A linear classifier "
                       "follows.\n`mlp` alone is mlp:{}\n",
                       mlp_recipe()),
           "mlp", strokes_input(), kSmallImages, torch::MemoryFormat::Contiguous},
          /*min_side=*/1,
          [](const std::string& spec) { parse_mlp(spec); },
          make_mlp};
}

}  // namespace renorm::models
