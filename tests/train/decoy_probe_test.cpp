#include "train/decoy_probe.h"

#include <gtest/gtest.h>
#include <renorm/nn/batch_renorm.h>
#include <torch/torch.h>

#include "data/strokes.h"

namespace renorm::train {
namespace {

constexpr int64_t kImages = 200;

// One channel per class: the product of the image with the mean character of the class, and a norm if asked
// for.
struct Templates : models::Classifier {
  Templates(const data::ByteImages& characters, int64_t classes, bool normed) {
    const torch::Tensor bytes = torch::tensor(characters.pixels, torch::kUInt8)
                                    .to(torch::kFloat)
                                    .view({classes, -1, characters.image_bytes()});
    const torch::Tensor mean = bytes.mean(1);
    weights = mean - mean.mean(0);
    if (normed) norm = register_module("norm", BatchRenorm1d(BatchRenormOptions(classes)));
  }
  models::Logits compute(const torch::Tensor& images) override {
    const torch::Tensor x = images.flatten(1).mm(weights.t());
    return {norm.is_empty() ? x : norm->forward(x), {}};
  }
  torch::Tensor weights;
  BatchRenorm1d norm{nullptr};
};

class DecoyProbing : public ::testing::Test {
 protected:
  data::StrokesOptions options_ =
      data::parse_strokes("classes=20,train=1,test=8,ink=1,jitter=0.25,decoy=0.7");
  data::ByteImages characters_ =
      data::generate_strokes(data::characters_of(options_), 1, [](int64_t, int64_t) {}).test;

  DecoyProbe probe(bool normed, uint64_t seed = 1) {
    Templates model(characters_, options_.classes, normed);
    data::Description description;
    description.channels = 1;
    description.mean = {0.5};
    description.std = {0.2};
    return probe_decoys(model, options_, description, characters_, kImages, seed);
  }
};

// The probed image is the same in every company, and without norms the company has no effect.
TEST_F(DecoyProbing, CompanyIsNothingToAModelWithoutNorms) {
  const DecoyProbe probe = this->probe(false);
  EXPECT_EQ(probe.images, kImages);
  EXPECT_GT(probe.alone, 60.0);  // the decoy has 0.9 of the ink
  EXPECT_EQ(probe.with_partner, probe.alone);
  EXPECT_EQ(probe.with_decoys_partner, probe.alone);
  EXPECT_EQ(probe.with_neither, probe.alone);
  ASSERT_EQ(probe.by_ink.size(), 5U);
  EXPECT_EQ(probe.by_ink[3].ink, 1.0);
  EXPECT_GE(probe.by_ink[3].own, probe.alone);  // the decoy has 0.7 of the ink
}

// In a batch of 32 a channel that fires for two images is normalized to less than one that fires for one.
TEST_F(DecoyProbing, APartnerSuppressesItsClassUnderBatchStatistics) {
  const DecoyProbe probe = this->probe(true);
  EXPECT_LT(probe.with_partner, probe.with_neither);
  EXPECT_GT(probe.with_decoys_partner, probe.with_neither);
}

TEST_F(DecoyProbing, ASeedGivesTheSameImages) {
  const DecoyProbe first = probe(true), again = probe(true), other = probe(true, 2);
  EXPECT_EQ(first.with_partner, again.with_partner);
  EXPECT_EQ(first.by_ink[0].own, again.by_ink[0].own);
  EXPECT_TRUE(first.with_partner != other.with_partner || first.by_ink[0].own != other.by_ink[0].own);
}

}  // namespace
}  // namespace renorm::train
