// A folded layer computes the same as the layer followed by the norm.
#include <renorm/nn/convert.h>

#include "support.h"

namespace renorm::testing {
namespace {

using Fold = Seeded;

template <typename Layer, typename Norm>
void expect_folds(Layer layer, Norm norm, const std::vector<int64_t>& shape) {
  for (const auto dtype : {at::kDouble, at::kFloat}) {
    layer->to(dtype);
    norm->to(dtype);
    randomize(*norm);
    layer->eval();
    norm->eval();
    auto folded = fold(layer, norm);
    const auto x = torch::randn(shape, dtype);
    EXPECT_LE(relative_error(folded->forward(x), norm->forward(layer->forward(x))),
              dtype == at::kDouble ? kDoubleTolerance : kFloatTolerance);
    EXPECT_EQ(folded->weight.scalar_type(), dtype);
    EXPECT_TRUE(folded->options.bias());
    EXPECT_TRUE(folded->weight.requires_grad());
    EXPECT_FALSE(folded->is_training());
    EXPECT_EQ(folded->parameters().size(), 2U);
  }
}

TEST_F(Fold, WorksForLinear) {
  expect_folds(torch::nn::Linear(5, 7), BatchRenorm1d(7), {3, 5});
  expect_folds(torch::nn::Linear(torch::nn::LinearOptions(5, 7).bias(false)), BatchRenorm1d(7), {3, 5});
}

TEST_F(Fold, WorksForConv1d) {
  expect_folds(torch::nn::Conv1d(torch::nn::Conv1dOptions(4, 6, 3).stride(2).padding(1)), BatchRenorm1d(6),
               {2, 4, 11});
}

TEST_F(Fold, WorksForConv2dWithGroupsDilationAndNoBias) {
  const auto options = torch::nn::Conv2dOptions(4, 6, 3).groups(2).dilation(2).padding(2).bias(false);
  expect_folds(torch::nn::Conv2d(options), BatchRenorm2d(6), {2, 4, 9, 8});
  expect_folds(torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 6, {1, 3}).padding(torch::kSame)),
               BatchRenorm2d(BatchRenormOptions(6).scale(false)), {2, 4, 9, 8});
}

TEST_F(Fold, WorksForConv3dAndANormWithoutParameters) {
  expect_folds(torch::nn::Conv3d(torch::nn::Conv3dOptions(2, 3, 2)),
               BatchRenorm3d(BatchRenormOptions(3).affine(false)), {2, 2, 4, 5, 3});
}

TEST_F(Fold, DropsAFusedReluIfTold) {
  torch::nn::Conv2d layer(3, 4, 3);
  BatchRenorm2d norm(BatchRenormOptions(4).activation(Activation::kRelu));
  randomize(*norm);
  norm->eval();
  auto folded = fold(layer, norm, FusedRelu::kDrop);
  const auto x = torch::randn({5, 3, 6, 6});
  const auto expected = norm->forward(layer->forward(x));
  EXPECT_LE(relative_error(torch::relu(folded->forward(x)), expected), kFloatTolerance);
  EXPECT_LT(folded->forward(x).min().item<float>(), 0.0F) << "nothing for the ReLU to do";
}

TEST_F(Fold, LeavesTheLayerAndTheRandomNumbersAlone) {
  torch::nn::Conv2d layer(3, 4, 3);
  BatchRenorm2d norm(4);
  randomize(*norm);
  const auto weight = layer->weight.clone();
  const auto bias = layer->bias.clone();
  torch::manual_seed(5);
  const auto expected = torch::rand({4});
  torch::manual_seed(5);
  fold(layer, norm);
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
  EXPECT_TRUE(torch::equal(layer->weight, weight));
  EXPECT_TRUE(torch::equal(layer->bias, bias));
}

TEST_F(Fold, RejectsANormThatCannotBeFolded) {
  torch::nn::Conv2d layer(3, 4, 3);
  expect_message([&] { fold(layer, BatchRenorm2d(5)); }, {"renorm::fold", "norm", "4 channels", "5"});
  expect_message([&] { fold(layer, BatchRenorm2d(BatchRenormOptions(4).track_running_stats(false))); },
                 {"renorm::fold", "norm", "averages", "track_running_stats = false"});
  expect_message([&] { fold(layer, BatchRenorm2d(BatchRenormOptions(4).activation(Activation::kRelu))); },
                 {"renorm::fold", "norm", "activation", "kNone", "kRelu"});
}

}  // namespace
}  // namespace renorm::testing
