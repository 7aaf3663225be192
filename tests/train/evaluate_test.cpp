#include "train/evaluate.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "base/errors.h"
#include "support.h"
#include "train/tensor_file.h"
#include "train/weight_average.h"

namespace renorm::train {
namespace {

using testing::TinySplit;

constexpr int64_t kClasses = 4;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Random images of `kClasses` channels, labels 0 1 2 3 0 1 ...
TinySplit random_split(int64_t size) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < size; ++i) labels.push_back(i % kClasses);
  return {torch::randn({size, kClasses, 2, 3}) * 2.0 + 0.5, labels};
}

// The logits are the images. Every call is recorded.
struct Echo : models::Classifier {
  models::Logits compute(const torch::Tensor& images) override {
    batches.push_back(images.size(0));
    graph = graph || torch::GradMode::is_enabled();
    training = training || is_training();
    if (static_cast<int64_t>(batches.size()) == fail_at) throw std::runtime_error("from the model");
    return {images.flatten(1), {}};
  }
  std::vector<int64_t> batches;
  bool graph = false;
  bool training = false;
  int64_t fail_at = -1;
};

// Dropout, a norm of either kind, and the channels' means as logits.
struct Normed : models::Classifier {
  explicit Normed(bool native) {
    drop = register_module("drop", torch::nn::Dropout(0.5));
    if (native) {
      their_norm = register_module("norm", torch::nn::BatchNorm2d(kClasses));
    } else {
      our_norm = register_module("norm", BatchRenorm2d(BatchRenormOptions(kClasses)));
    }
    const torch::NoGradGuard no_grad;
    for (auto& named : named_state(*this)) {
      if (named.tensor.is_floating_point()) named.tensor.uniform_(0.5, 1.5);
    }
  }
  models::Logits compute(const torch::Tensor& images) override {
    const auto x = drop->forward(images);
    const auto y = our_norm.is_empty() ? their_norm->forward(x) : our_norm->forward(x);
    if (throws) throw std::runtime_error("from the model");
    return {y.mean({2, 3}), {}};
  }
  torch::nn::Dropout drop{nullptr};
  BatchRenorm2d our_norm{nullptr};
  torch::nn::BatchNorm2d their_norm{nullptr};
  bool throws = false;
};

data::SamplerSpec labels_spec(int64_t labels, int64_t images) {
  data::SamplerSpec spec;
  spec.kind = data::SamplerSpec::Kind::kLabels;
  spec.labels = labels;
  spec.images = images;
  return spec;
}

class EvaluateTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(1702); }
};

TEST_F(EvaluateTest, CountsAndAveragesByHand) {
  const auto images = torch::tensor({{0.f, 2.f, 0.f, 0.f},       // predicts 1, is 1
                                     {3.f, 1.f, 0.f, -1.f},      // predicts 0, is 2
                                     {1.f, 1.f, 1.f, 1.f},       // tie: predicts 0, is 0
                                     {0.f, 5.f, 0.f, 5.f},       // tie: predicts 1, is 3
                                     {-9.f, -8.f, -7.f, -6.f}})  // predicts 3, is 3
                          .reshape({5, 4, 1, 1});
  const TinySplit split(images, {1, 2, 0, 3, 3});
  Echo model;
  const auto result = evaluate(model, split, kClasses);
  EXPECT_EQ(result.images, 5);
  EXPECT_EQ(result.correct, 3);
  EXPECT_DOUBLE_EQ(result.accuracy(), 60.0);
  EXPECT_EQ(result.class_images, (std::vector<int64_t>{1, 1, 1, 2}));
  EXPECT_EQ(result.class_correct, (std::vector<int64_t>{1, 1, 0, 1}));
  const double loss = (std::log(3.0 + std::exp(2.0)) - 2.0) +
                      (std::log(std::exp(3.0) + std::exp(1.0) + 1.0 + std::exp(-1.0)) - 0.0) + std::log(4.0) +
                      (std::log(2.0 + 2.0 * std::exp(5.0)) - 5.0) +
                      (std::log(std::exp(-9.0) + std::exp(-8.0) + std::exp(-7.0) + std::exp(-6.0)) + 6.0);
  EXPECT_NEAR(result.loss, loss / 5.0, 1e-14);
}

TEST_F(EvaluateTest, LargeLogitsDoNotOverflow) {
  const auto images = torch::tensor({{1e30f, 0.f, 0.f, 0.f}, {1e30f, 0.f, 0.f, 0.f}}).reshape({2, 4, 1, 1});
  Echo model;
  EXPECT_EQ(evaluate(model, TinySplit(images, {0, 0}), kClasses).loss, 0.0);
  EXPECT_NEAR(evaluate(model, TinySplit(images, {0, 1}), kClasses).loss, 5e29, 1e24);
}

TEST_F(EvaluateTest, LogitsThatAreNotFinitePredictNothing) {
  const auto images = torch::tensor({{kNan, 0.f, 0.f, 0.f}, {kNan, kNan, kNan, kNan}, {0.f, 0.f, 0.f, 1.f}})
                          .reshape({3, 4, 1, 1});
  Echo model;
  const auto result = evaluate(model, TinySplit(images, {1, 0, 3}), kClasses);
  EXPECT_EQ(result.correct, 1);
  EXPECT_TRUE(std::isnan(result.loss));
}

TEST_F(EvaluateTest, TakesFewerLargeImagesAtOnce) {
  const auto batch_of = [](int64_t side) {
    return evaluation_batch(TinySplit(torch::empty({1, 1, side, side}), {0}));
  };
  EXPECT_EQ(batch_of(20), kEvaluationBatch);
  EXPECT_EQ(batch_of(224), 31);
  EXPECT_EQ(batch_of(299), 17);
  EXPECT_EQ(batch_of(2000), 1);
}

TEST_F(EvaluateTest, SeesEveryExampleOnceInBatchesOfFixedSize) {
  const auto images = torch::randn({2 * kEvaluationBatch + 7, kClasses, 1, 1});
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < images.size(0); ++i) labels.push_back(images[i].argmax().item<int64_t>());
  const TinySplit split(images, labels);
  Echo model;
  const auto result = evaluate(model, split, kClasses);
  EXPECT_EQ(model.batches, (std::vector<int64_t>{kEvaluationBatch, kEvaluationBatch, 7}));
  EXPECT_EQ(result.images, images.size(0));
  EXPECT_EQ(result.correct, images.size(0));
  for (size_t i = 0; i < split.tickets.size(); ++i) EXPECT_EQ(split.tickets[i], i);
  EXPECT_FALSE(model.graph);
  EXPECT_FALSE(model.training);
}

TEST_F(EvaluateTest, EmptySplitHasNoAccuracy) {
  Echo model;
  const auto result = evaluate(model, TinySplit(torch::zeros({0, 4, 1, 1}), {}), kClasses);
  EXPECT_EQ(result.images, 0);
  EXPECT_EQ(result.accuracy(), 0.0);
  EXPECT_EQ(result.loss, 0.0);
  EXPECT_TRUE(model.batches.empty());
}

TEST_F(EvaluateTest, WrongNumberOfLogitsIsRefused) {
  Echo model;
  EXPECT_THROW(evaluate(model, random_split(3), kClasses), c10::Error);
}

TEST_F(EvaluateTest, PutsEveryModuleBackIntoItsModeAlsoWhenTheModelThrows) {
  const auto split = random_split(12);
  for (const bool throws : {false, true}) {
    for (const bool batch_statistics : {false, true}) {
      const auto model = std::make_shared<Normed>(false);
      model->throws = throws;
      model->train();
      model->our_norm->eval();
      const auto call = [&] {
        batch_statistics ? evaluate_with_batch_statistics(*model, split, kClasses, {}, 6, 1)
                         : evaluate(*model, split, kClasses);
      };
      if (throws) {
        EXPECT_THROW(call(), std::runtime_error);
      } else {
        call();
      }
      EXPECT_TRUE(model->is_training());
      EXPECT_TRUE(model->drop->is_training());
      EXPECT_FALSE(model->our_norm->is_training());
      EXPECT_FALSE(model->our_norm->uses_batch_statistics());
      EXPECT_TRUE(torch::GradMode::is_enabled());
    }
  }
}

TEST_F(EvaluateTest, UsesTheAveragesOfTheNorms) {
  const auto split = random_split(20);
  for (const bool native : {false, true}) {
    const auto model = std::make_shared<Normed>(native);
    model->eval();
    const auto logits = model->forward(split.load({{3, 0}}).images);
    model->train();
    const std::string before = encode_tensors(named_state(*model));
    const TinySplit one(split.load({{3, 0}}).images, {3});
    const double expected = -torch::log_softmax(logits.to(torch::kDouble), 1)[0][3].item<double>();
    EXPECT_NEAR(evaluate(*model, one, kClasses).loss, expected, 1e-6) << native;
    EXPECT_EQ(encode_tensors(named_state(*model)), before) << native;
  }
}

// Loss of minibatches normalized with their own statistics, by plain operations.
double loss_with_batch_statistics(const Normed& model, const TinySplit& split,
                                  const std::vector<std::vector<int64_t>>& minibatches) {
  double sum = 0.0;
  int64_t count = 0;
  const auto& weight = model.our_norm.is_empty() ? model.their_norm->weight : model.our_norm->weight;
  const auto& bias = model.our_norm.is_empty() ? model.their_norm->bias : model.our_norm->bias;
  for (const auto& minibatch : minibatches) {
    std::vector<data::Draw> draws;
    for (const int64_t index : minibatch) draws.push_back({index, 0});
    const auto batch = split.load(draws);
    const auto x = batch.images.to(torch::kDouble);
    const auto mean = x.mean({0, 2, 3}, /*keepdim=*/true);
    const auto std = ((x - mean).square().mean({0, 2, 3}, /*keepdim=*/true) + 1e-5).sqrt();
    const auto y = (x - mean) / std * weight.reshape({1, -1, 1, 1}) + bias.reshape({1, -1, 1, 1});
    const auto logits = torch::log_softmax(y.mean({2, 3}), 1);
    sum -= logits.gather(1, batch.labels.unsqueeze(1)).sum().item<double>();
    count += static_cast<int64_t>(minibatch.size());
  }
  return sum / static_cast<double>(count);
}

TEST_F(EvaluateTest, BatchStatisticsAreThoseOfEachMinibatchAndNoAverageMoves) {
  const torch::NoGradGuard no_grad;
  const auto split = random_split(32);
  const auto spec = labels_spec(2, 4);
  data::StepShape shape;
  shape.minibatch = 8;
  shape.microbatch = 8;
  data::Sampler sampler(spec, shape, split.labels(), kClasses, 5);
  std::vector<std::vector<int64_t>> minibatches;
  for (int64_t i = 0; i < 4; ++i) minibatches.push_back(sampler.step(i));
  for (const bool native : {false, true}) {
    const auto model = std::make_shared<Normed>(native);
    const std::string before = encode_tensors(named_state(*model));
    const auto result = evaluate_with_batch_statistics(*model, split, kClasses, spec, 0, 5);
    EXPECT_EQ(result.images, 32);
    EXPECT_NEAR(result.loss, loss_with_batch_statistics(*model, split, minibatches), 1e-6) << native;
    EXPECT_EQ(encode_tensors(named_state(*model)), before) << native;
    EXPECT_GT(std::abs(result.loss - evaluate(*model, split, kClasses).loss), 1e-3) << native;
  }
}

TEST_F(EvaluateTest, NativeNormHasItsAveragesBackAlsoWhenTheModelThrows) {
  const auto split = random_split(12);
  const auto model = std::make_shared<Normed>(true);
  const auto mean = model->their_norm->running_mean;
  const auto var = model->their_norm->running_var;
  for (const bool throws : {false, true}) {
    model->throws = throws;
    try {
      evaluate_with_batch_statistics(*model, split, kClasses, {}, 6, 1);
    } catch (const std::runtime_error&) {
    }
    EXPECT_TRUE(model->their_norm->running_mean.is_same(mean));
    EXPECT_TRUE(model->their_norm->running_var.is_same(var));
    EXPECT_TRUE(model->their_norm->options.track_running_stats());
  }
}

TEST_F(EvaluateTest, IidMinibatchesCoverTheSplitOnceRoundedUp) {
  const auto images = torch::randn({23, kClasses, 1, 1});
  const TinySplit split(images, std::vector<int64_t>(23, 1));
  Echo model;
  const auto result = evaluate_with_batch_statistics(model, split, kClasses, {}, 10, 7);
  EXPECT_EQ(model.batches, (std::vector<int64_t>{10, 10, 10}));
  EXPECT_EQ(result.images, 30);
  const auto again = evaluate_with_batch_statistics(model, split, kClasses, {}, 10, 7);
  EXPECT_EQ(again.loss, result.loss);
  EXPECT_NE(evaluate_with_batch_statistics(model, split, kClasses, {}, 10, 8).loss, result.loss);
}

// A stored minibatch may have any size.
TEST_F(EvaluateTest, AMinibatchHasNoMoreImagesThanTheSplit) {
  const TinySplit split(torch::randn({23, kClasses, 1, 1}), std::vector<int64_t>(23, 1));
  EXPECT_EQ(statistics_minibatch(split, {}, 10), 10);
  EXPECT_EQ(statistics_minibatch(split, {}, int64_t{1} << 20), 23);
  EXPECT_EQ(statistics_minibatch(split, labels_spec(2, 4), 10), 8);
  Echo model;
  EXPECT_EQ(evaluate_with_batch_statistics(model, split, kClasses, {}, int64_t{1} << 20, 7).images, 23);
  EXPECT_EQ(model.batches, std::vector<int64_t>{23});
}

TEST_F(EvaluateTest, SamplerThatTheSplitCannotServeIsRefused) {
  Echo model;
  EXPECT_THROW(evaluate_with_batch_statistics(model, random_split(8), kClasses, labels_spec(2, 3), 0, 1),
               DataError);
  EXPECT_TRUE(model.batches.empty());
}

}  // namespace
}  // namespace renorm::train
