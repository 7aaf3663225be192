// Nets without norm layers, as TorchScript and as safetensors, compute what the trained net computes.
#include "export/portable_model.h"

#include <gtest/gtest.h>
#include <renorm/nn/model.h>
#include <torch/torch.h>

#include <memory>
#include <string>

#include "export/ready_model.h"
#include "train/tensor_file.h"
#include "train/weight_average.h"
#include "trained_nets.h"

namespace renorm::exporting {
namespace {

constexpr double kTolerance = 1e-5;  // of the largest logit

using namespace testing;

double difference(const torch::Tensor& actual, const torch::Tensor& expected) {
  return ((actual - expected).abs().max() / expected.abs().max()).item<double>();
}

class PortableModel : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override { model_ = trained(GetParam()); }
  Blueprint blueprint() const { return blueprint_of(card_for(GetParam(), false)); }
  // Batches of other sizes than that of the trace.
  template <typename Logits>
  void expect_same(Logits&& logits) {
    const torch::NoGradGuard no_grad;
    for (const int64_t count : {1, 3, 7}) {
      const torch::Tensor images = torch::randn({count, 3, 12, 10});
      const torch::Tensor expected = model_->forward(images);
      ASSERT_GT(expected.std(0, /*unbiased=*/false).max().item<double>(), count > 1 ? 1e-3 : -1.0);
      const torch::Tensor actual = logits(images);
      ASSERT_EQ(actual.sizes(), expected.sizes());
      EXPECT_LE(difference(actual, expected), kTolerance) << count << " images";
    }
  }

  std::shared_ptr<models::Classifier> model_;
};

TEST_P(PortableModel, WithPlainNormsComputesTheSame) {
  const auto plain = with_plain_norms(*model_, blueprint());
  expect_same([&](const torch::Tensor& images) { return plain->forward(images); });
  EXPECT_TRUE(batch_renorm_layers(*plain).empty());
}

TEST_P(PortableModel, FoldedComputesTheSameWithoutNorms) {
  const auto net = folded(*model_, blueprint());
  expect_same([&](const torch::Tensor& images) { return net->forward(images); });
  EXPECT_FALSE(net->is_training());
  for (const train::NamedTensor& named : train::named_state(*net)) {
    EXPECT_EQ(named.name.find("norm"), std::string::npos) << named.name;
  }
}

TEST_P(PortableModel, LeavesTheTrainedNetAlone) {
  const std::string before = train::encode_tensors(train::named_state(*model_));
  const auto net = folded(*model_, blueprint());
  const auto plain = with_plain_norms(*model_, blueprint());
  const torch::NoGradGuard no_grad;
  for (const auto& changed : {net, plain}) {
    for (train::NamedTensor& named : train::named_state(*changed)) named.tensor.zero_();
  }
  EXPECT_EQ(train::encode_tensors(train::named_state(*model_)), before);
}

TEST_P(PortableModel, ComesBackFromTorchScript) {
  for (const bool fold : {false, true}) {
    const std::string bytes = encode_model(*model_, card_for(GetParam(), fold), ModelFormat::kTorchScript);
    const ReadyModel ready = decode_model(bytes, "FILE.pt", ModelFormat::kTorchScript);
    expect_same(ready.logits);
    EXPECT_EQ(ready.card.folded, fold);
    EXPECT_EQ(to_json(ready.card), to_json(card_for(GetParam(), fold)));
  }
}

TEST_P(PortableModel, ComesBackFromSafetensors) {
  for (const bool fold : {false, true}) {
    const std::string bytes = encode_model(*model_, card_for(GetParam(), fold), ModelFormat::kSafetensors);
    const ReadyModel ready = decode_model(bytes, "FILE.safetensors", ModelFormat::kSafetensors);
    expect_same(ready.logits);
    EXPECT_EQ(to_json(ready.card), to_json(card_for(GetParam(), fold)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Nets, PortableModel,
    ::testing::Values(Kind{"convnet:8,max,1x3:6,8/2", "renorm", false}, Kind{"convnet:8/2,8", "native", true},
                      Kind{"inception-small", "renorm", false}, Kind{"inception-small", "native", false},
                      Kind{"resnet-small", "renorm", true}, Kind{"resnet-small", "batchnorm", false},
                      Kind{"resnet-small", "native", true}));

}  // namespace
}  // namespace renorm::exporting
