// Group normalization, dense layers, and the initial bias of their norms.
#include "models/norm.h"

#include "models/blocks.h"
#include "support.h"

namespace renorm::models {
namespace {

using Norm = Seeded;

TEST_F(Norm, GroupNormIsThatOfLibTorchIn16Channels) {
  for (const int64_t channels : {16, 48, 24, 7}) {
    const int64_t each = channels % 16 == 0 ? 16 : channels == 24 ? 8 : 1;
    torch::nn::AnyModule norm = groupnorm()(channels, Activation::kRelu);
    const torch::Tensor x = torch::randn({3, channels, 5, 4});
    const torch::Tensor groups = x.view({3, channels / each, -1});
    const torch::Tensor centred = groups - groups.mean(2, true);
    const torch::Tensor expected =
        (centred / (centred.square().mean(2, true) + 1e-3).sqrt()).view_as(x).relu();
    EXPECT_TRUE(torch::allclose(norm.forward(x), expected, 1e-5, 1e-5)) << channels;
  }
}

TEST_F(Norm, GroupNormTreatsEveryImageAlone) {
  for (const std::string name : {"mlp:24,16", "convnet", "inception-small", "resnet-small"}) {
    const auto model = make_model(name, images(1, 20, 10), groupnorm());
    const torch::Tensor x = torch::randn({6, 1, 20, 20});
    const torch::Tensor all = model->forward(x);
    EXPECT_TRUE(torch::allclose(model->forward(x.slice(0, 2, 3)), all.slice(0, 2, 3), 1e-4, 1e-5)) << name;
    model->eval();
    EXPECT_TRUE(torch::allclose(model->forward(x), all, 1e-4, 1e-5)) << name;
  }
}

// One pixel: a convolution with the same weights gives the same.
TEST_F(Norm, DenseLayersAreConvolutionsOfOnePixel) {
  const auto model = make_model("mlp:8", images(2, 5, 3), batchnorm());
  model->eval();
  const torch::Tensor x = torch::randn({4, 2, 5, 5});
  const auto parameters = model->named_parameters();
  const torch::Tensor dense = torch::conv2d(x.reshape({4, 50, 1, 1}), parameters["conv1.conv.weight"]);
  // Averages of a new layer are 0 and 1.
  const torch::Tensor expected =
      torch::linear(dense.flatten(1).relu(), parameters["classifier.weight"], parameters["classifier.bias"]);
  EXPECT_TRUE(torch::allclose(model->forward(x), expected, 1e-5, 1e-6));
}

TEST_F(Norm, BiasesOfDenseLayersAreThoseAfterFlatOrPool) {
  const auto count = [](const std::string& spec) {
    return make_model(spec, images(1, 20, 10), batchnorm())->dense_norm_biases().size();
  };
  EXPECT_EQ(count("mlp:8,9,10"), 3U);
  EXPECT_EQ(count("convnet:8/2,16/2,flat,32,32"), 2U);
  EXPECT_EQ(count("convnet:8/2,16/2,pool,32"), 1U);
  EXPECT_EQ(count("convnet:8/2,16/2"), 0U);
  EXPECT_EQ(count("inception-small"), 0U);
}

// The order of the flattened values does not depend on the memory format.
TEST_F(Norm, FlatIsTheSameInBothFormats) {
  const auto model = make_model("convnet:8/2,flat,16", images(3, 20, 10), batchnorm());
  model->eval();
  const torch::Tensor x = torch::randn({4, 3, 20, 20});
  const torch::Tensor expected = model->forward(x);
  model->computation.memory_format = torch::MemoryFormat::ChannelsLast;
  EXPECT_TRUE(torch::allclose(model->forward(x), expected, 1e-4, 1e-5));
}

}  // namespace
}  // namespace renorm::models
