// The nets as torchvision has them.
#include "models/blocks.h"
#include "support.h"

namespace renorm::models {
namespace {

using FullSize = Seeded;

struct Published {
  const char* spec;
  int64_t side;
  int64_t parameters;  // for 1,000 classes, with a weight in every norm
  int64_t norms;
  int64_t channels;  // of all norms together
};
constexpr Published kPublished[] = {{"inception-v3", 299, 23834568, 94, 17216},
                                    {"inception-v3:aux", 299, 27161264, 96, 18112},
                                    {"resnet18", 224, 11689512, 20, 4800},
                                    {"resnet50", 224, 25557032, 53, 26560}};

TEST_F(FullSize, HaveThePublishedNumberOfParameters) {
  for (const Published& net : kPublished) {
    const auto model = make_model(net.spec, images(3, net.side, 1000), batchnorm(/*scale=*/true));
    EXPECT_EQ(count_parameters(*model), net.parameters) << net.spec;
    EXPECT_EQ(count_layers<BatchRenorm2dImpl>(*model), net.norms) << net.spec;
    EXPECT_EQ(count_layers<ConvNormImpl>(*model), net.norms) << net.spec;
    int64_t channels = 0;
    for (const NamedLayer& named : batch_renorm_layers(*model)) channels += named.layer->bias.numel();
    EXPECT_EQ(channels, net.channels) << net.spec;
  }
}

TEST_F(FullSize, TakeSmallestAndOblongImages) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, min_side] : {std::make_pair("inception-v3", 75), std::make_pair("resnet18", 32)}) {
    for (const auto& [height, width] :
         {std::make_pair(min_side, min_side), std::make_pair(min_side, min_side + 9)}) {
      const auto model = make_model(name, {1, height, width, 3}, batchnorm());
      const torch::Tensor logits = model->forward(torch::randn({2, 1, height, width}));
      EXPECT_EQ(logits.sizes(), (at::IntArrayRef{2, 3})) << name;
      EXPECT_TRUE(torch::isfinite(logits).all().item<bool>()) << name;
    }
  }
}

TEST_F(FullSize, SmallerImagesAreErrors) {
  const auto refusal_of = [](const std::string& spec, int64_t height, int64_t width) {
    return message_of([&] { make_model(spec, {3, height, width, 3}, batchnorm()); });
  };
  EXPECT_EQ(refusal_of("inception-v3", 74, 75),
            "inception-v3 takes images with a height from 75 to 65536, got 74");
  EXPECT_EQ(refusal_of("inception-v3:aux", 299, 298),
            "inception-v3:aux takes images with a width from 299 to 65536, got 298");
  EXPECT_EQ(refusal_of("resnet50", 32, 31), "resnet50 takes images with a width from 32 to 65536, got 31");
}

TEST_F(FullSize, AuxiliaryHeadComputesInTrainingOnlyAndEveryParameterLearns) {
  const auto model = make_model("inception-v3:aux", images(3, 299, 7), batchnorm(/*scale=*/true));
  // Two images: the head ends in a single pixel, of which one image has no variance.
  const Logits logits = model->logits(torch::randn({2, 3, 299, 299}));
  ASSERT_TRUE(logits.auxiliary.defined());
  EXPECT_EQ(logits.main.sizes(), (at::IntArrayRef{2, 7}));
  EXPECT_EQ(logits.auxiliary.sizes(), (at::IntArrayRef{2, 7}));
  EXPECT_FALSE(torch::equal(logits.main, logits.auxiliary));
  (logits.main.square().sum() + logits.auxiliary.square().sum()).backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(torch::isfinite(item.value().grad()).all().item<bool>()) << item.key();
    EXPECT_GT(item.value().grad().abs().max().item<double>(), 0.0) << item.key();
  }
  model->eval();
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(model->logits(torch::randn({1, 3, 299, 299})).auxiliary.defined());
}

TEST_F(FullSize, NoAuxiliaryLogitsUnlessAskedFor) {
  const torch::NoGradGuard no_grad;
  const auto model = make_model("inception-v3", images(3, 75, 7), batchnorm());
  EXPECT_FALSE(model->logits(torch::randn({2, 3, 75, 75})).auxiliary.defined());
}

TEST_F(FullSize, InceptionDropsOutInTrainingAsTheSeedSays) {
  const torch::NoGradGuard no_grad;
  const auto model = make_model("inception-v3", images(3, 75, 7), batchnorm());
  const torch::Tensor x = torch::randn({2, 3, 75, 75});
  const auto logits = [&](uint64_t seed) {
    torch::manual_seed(seed);
    return model->forward(x);
  };
  const torch::Tensor first = logits(1);
  EXPECT_TRUE(torch::equal(logits(1), first));
  EXPECT_FALSE(torch::equal(logits(2), first));
  model->eval();
  const torch::Tensor evaluated = logits(1);
  EXPECT_TRUE(torch::equal(logits(2), evaluated));
}

TEST_F(FullSize, RunInBFloat16) {
  const auto model = make_model("resnet50", images(3, 64, 7), batchnorm());
  model->computation = {torch::kBFloat16, torch::MemoryFormat::ChannelsLast};
  const torch::Tensor logits = model->forward(torch::randn({2, 3, 64, 64}));
  EXPECT_EQ(logits.scalar_type(), torch::kFloat);
  logits.square().sum().backward();
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(torch::isfinite(item.value().grad()).all().item<bool>()) << item.key();
  }
}

}  // namespace
}  // namespace renorm::models
