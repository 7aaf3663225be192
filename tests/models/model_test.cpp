// Models by name: their parts, outputs and errors.
#include "models/model.h"

#include <cmath>

#include "base/errors.h"
#include "models/blocks.h"
#include "models/weight_limit.h"
#include "support.h"

namespace renorm::models {
namespace {

using Models = Seeded;

TEST_F(Models, GiveOneLogitAClassForEverySizeOfImage) {
  for (const std::string& name : kNames) {
    for (const int64_t channels : {1, 3}) {
      for (const int64_t side : {20, 28, 32, 40}) {
        const auto model = make_model(name, images(channels, side, 13), batchnorm());
        const torch::NoGradGuard no_grad;
        const torch::Tensor logits = model->forward(torch::randn({2, channels, side, side}));
        EXPECT_EQ(logits.sizes(), (at::IntArrayRef{2, 13})) << name << " " << side;
        EXPECT_TRUE(torch::isfinite(logits).all().item<bool>()) << name << " " << side;
      }
    }
  }
}

TEST_F(Models, TakeOblongAndLeastImages) {
  const torch::NoGradGuard no_grad;
  for (const std::string& name : kNames) {
    EXPECT_EQ(make_model(name, {3, 24, 37, 5}, batchnorm())->forward(torch::randn({2, 3, 24, 37})).size(1),
              5);
    EXPECT_EQ(make_model(name, {3, 8, 8, 5}, batchnorm())->forward(torch::randn({3, 3, 8, 8})).size(1), 5);
  }
}

struct Counts {
  const char* name;
  int64_t norms;
  int64_t channels;  // of all norms together
  int64_t parameters;
};

// Parameters were counted by hand from the widths: grey images, 200 classes, weight of the norms fixed.
constexpr Counts kCounts[] = {
    {"convnet", 8, 528, 157032}, {"inception-small", 39, 1264, 330056}, {"resnet-small", 15, 560, 186760}};

TEST_F(Models, HaveTheirNumberOfParameters) {
  for (const Counts& counts : kCounts) {
    for (const auto& [fixed, trained] :
         {std::make_pair(batchnorm(false), batchnorm(true)), std::make_pair(native(false), native(true))}) {
      const auto plain = make_model(counts.name, images(1, 20, 200), fixed);
      EXPECT_EQ(count_parameters(*plain), counts.parameters) << counts.name;
      const auto scaled = make_model(counts.name, images(1, 20, 200), trained);
      EXPECT_EQ(count_parameters(*scaled), counts.parameters + counts.channels) << counts.name;
    }
  }
}

TEST_F(Models, UseTheNormHandedInEverywhere) {
  for (const Counts& counts : kCounts) {
    const auto ours = make_model(counts.name, images(1, 20, 10), batchnorm());
    EXPECT_EQ(count_layers<BatchRenorm2dImpl>(*ours), counts.norms) << counts.name;
    EXPECT_EQ(count_layers<ConvNormImpl>(*ours), counts.norms) << counts.name;
    EXPECT_EQ(count_layers<torch::nn::BatchNorm2dImpl>(*ours), 0) << counts.name;
    const auto theirs = make_model(counts.name, images(1, 20, 10), native());
    EXPECT_EQ(count_layers<BatchRenormLayer>(*theirs), 0) << counts.name;
    EXPECT_EQ(count_layers<torch::nn::BatchNorm2dImpl>(*theirs), counts.norms) << counts.name;
  }
}

TEST_F(Models, NameTheirLayers) {
  for (const std::string& name : kNames) {
    const auto model = make_model(name, images(1, 20, 10), batchnorm());
    for (const NamedLayer& named : batch_renorm_layers(*model)) {
      EXPECT_EQ(named.layer->options.name(), named.path) << name;
      EXPECT_FALSE(named.path.empty()) << name;
    }
  }
  const auto model = make_model("inception-small", images(1, 20, 10), batchnorm());
  EXPECT_EQ(batch_renorm_layers(*model).back().path, "mixed.e.branch_pool.norm");
}

TEST_F(Models, SeedDecidesTheWeights) {
  for (const std::string& name : kNames) {
    const auto one = make_seeded(name, images(1, 20, 10), batchnorm(), 1);
    const auto same = make_seeded(name, images(1, 20, 10), native(), 1);
    const auto other = make_seeded(name, images(1, 20, 10), batchnorm(), 2);
    const auto expected = one->named_parameters();
    ASSERT_EQ(same->named_parameters().size(), expected.size());
    for (const auto& item : same->named_parameters()) {
      EXPECT_TRUE(torch::equal(item.value(), expected[item.key()])) << name << " " << item.key();
    }
    EXPECT_FALSE(torch::equal(other->parameters()[0], one->parameters()[0])) << name;
  }
}

TEST_F(Models, NewModelGivesEveryClassNearlyTheSameProbability) {
  for (const std::string& name : kNames) {
    const auto model = make_model(name, images(1, 20, 200), batchnorm());
    const torch::Tensor logits = model->forward(torch::randn({16, 1, 20, 20}));
    const double loss = torch::cross_entropy_loss(logits, torch::arange(16)).item<double>();
    EXPECT_NEAR(loss, std::log(200.0), 0.1) << name;
  }
}

TEST_F(Models, KindsCanBeMadeFromTheirExamples) {
  std::vector<std::string> names;
  for (const ModelKind& kind : model_kinds()) {
    names.push_back(kind.name);
    EXPECT_NE(make_model(kind.example, kind.input, batchnorm()), nullptr);
    EXPECT_EQ(kind.usage.rfind(kind.name, 0), 0U);
    EXPECT_EQ(kind.help.find('\n'), std::string::npos);
    EXPECT_EQ(kind.details.back(), '\n');
    EXPECT_EQ(&model_kind(kind.name + ":x"), &model_kind(kind.name));
  }
  std::vector<std::string> expected = kNames;
  expected.insert(expected.begin(), {"mlp", "lstm"});
  expected.insert(expected.end(), kFullNames.begin(), kFullNames.end());
  EXPECT_EQ(names, expected);
}

TEST_F(Models, LargerThanTheirFileAreRefusedBeforeTheyAreMade) {
  const auto make = [](const std::string& spec) { make_model(spec, images(1, 20, 200), batchnorm()); };
  {
    const FileWeightLimit limit(4 * 157032, "FILE");
    EXPECT_NO_THROW(make("convnet"));
    const FileWeightLimit inner(100, "OTHER");
    try {
      make("convnet:8192,8192");
      ADD_FAILURE() << "no error";
    } catch (const DataError& error) {
      EXPECT_STREQ(error.what(), "OTHER: 100 bytes are too few for the weights of its model");
    }
  }
  EXPECT_NO_THROW(make("convnet:1024,1024"));
}

// The count goes on over the layers: each of them would fit.
TEST_F(Models, LargerThanTheirFileInAllAreRefused) {
  const FileWeightLimit limit(0, "FILE");
  std::string spec = "convnet:256/2";
  for (int i = 0; i < 10; ++i) spec += ",256";
  EXPECT_THROW(make_model(spec, images(1, 20, 2), batchnorm()), DataError);
}

TEST_F(Models, UnknownNamesAndSpecsAreErrors) {
  const auto refusal_of = [](const std::string& spec) {
    return message_of([&] { make_model(spec, images(1, 20, 10), batchnorm()); });
  };
  EXPECT_EQ(refusal_of("inceptoin-small"),
            "unknown model 'inceptoin-small'; did you mean 'inception-small'?");
  EXPECT_EQ(refusal_of("vgg"),
            "unknown model 'vgg'; there are mlp, lstm, convnet, inception-small, resnet-small, inception-v3, "
            "resnet18, "
            "resnet50");
  EXPECT_NE(refusal_of("").find("unknown model ''"), std::string::npos);
  EXPECT_EQ(refusal_of("resnet-small:18"), "the model resnet-small has no options, got 'resnet-small:18'");
  EXPECT_NE(refusal_of("resnet-small:"), "");
  EXPECT_NE(refusal_of("convnet:").find("item 1 is empty"), std::string::npos);
  EXPECT_NE(refusal_of("convnet:8,mx").find("item 2 'mx'"), std::string::npos);
  EXPECT_NE(refusal_of("convnet:max,max,max,max,max").find("item 5 'max'"), std::string::npos);
  EXPECT_NE(message_of([] { model_kind("conv"); }), "");
  EXPECT_EQ(refusal_of("inception-v3:auxx"),
            "the model inception-v3 has one option, inception-v3:aux (with the auxiliary head), got "
            "'inception-v3:auxx'");
  EXPECT_NE(refusal_of("inception-v3:"), "");
  EXPECT_NE(refusal_of("resnet50:"), "");
}

TEST_F(Models, CheckedWithoutBeingMade) {
  for (const char* good : {"convnet", "convnet:8,max", "inception-v3", "inception-v3:aux", "resnet50"}) {
    EXPECT_EQ(message_of([&] { check_model(good); }), "") << good;
  }
  for (const char* bad : {"", "convnt", "convnet:8,mx", "inception-v3:AUX", "resnet18:50"}) {
    EXPECT_NE(message_of([&] { check_model(bad); }), "") << bad;
  }
}

TEST_F(Models, ImpossibleInputsAreErrors) {
  const auto refusal_of = [](const std::string& name, const InputShape& input) {
    return message_of([&] { make_model(name, input, batchnorm()); });
  };
  EXPECT_EQ(refusal_of("inception-small", {1, 7, 20, 10}),
            "inception-small takes images with a height from 8 to 65536, got 7");
  EXPECT_NE(refusal_of("resnet-small", {1, 20, 4, 10}).find("a width from 8"), std::string::npos);
  EXPECT_NE(refusal_of("convnet", {0, 20, 20, 10}).find("a number of channels from 1"), std::string::npos);
  EXPECT_NE(refusal_of("convnet", {1, 20, 20, 0}).find("a number of classes from 1"), std::string::npos);
}

}  // namespace
}  // namespace renorm::models
