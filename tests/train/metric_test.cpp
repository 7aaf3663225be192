// Embeddings: the net, the classes that are not trained on, recall, and a run.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <set>

#include "base/errors.h"
#include "data/unseen_classes.h"
#include "models/metric_net.h"
#include "support.h"
#include "train/recall.h"
#include "train/trainer.h"

namespace renorm::train {
namespace {

using testing::TinySplit;

// The outputs are the pixels.
struct Echo : models::Classifier {
  models::Logits compute(const torch::Tensor& images) override { return {images.flatten(1), {}}; }
};

models::MetricNet echo_net() { return {std::make_shared<Echo>(), 2, 3}; }

// Points on the circle at these angles, in degrees.
TinySplit circle(const std::vector<double>& degrees, const std::vector<int64_t>& labels) {
  torch::Tensor images = torch::empty({static_cast<int64_t>(degrees.size()), 1, 1, 2});
  for (size_t i = 0; i < degrees.size(); ++i) {
    const double angle = degrees[i] * std::acos(-1.0) / 180.0;
    images[static_cast<int64_t>(i)][0][0][0] = 3.0 * std::cos(angle);
    images[static_cast<int64_t>(i)][0][0][1] = 3.0 * std::sin(angle);
  }
  return {images, labels};
}

TEST(MetricNet, LogitsAreScaledCosines) {
  torch::manual_seed(1);
  models::MetricNet net = echo_net();
  const torch::Tensor images = torch::tensor({3.0F, 4.0F}).view({1, 1, 1, 2});
  const torch::Tensor embedding = net.embed(images);
  EXPECT_NEAR(embedding[0][0].item<double>(), 0.6, 1e-6);
  EXPECT_NEAR(embedding[0][1].item<double>(), 0.8, 1e-6);
  const torch::Tensor proxy = net.named_parameters()["proxies"][1];
  const double cosine = (embedding[0] * proxy).sum().item<double>() / proxy.norm().item<double>();
  EXPECT_NEAR(net.forward(images)[0][1].item<double>(), 16.0 * cosine, 1e-5);
}

TEST(Recall, FindsTheNearestOfTheSameClass) {
  models::MetricNet net = echo_net();
  // 0 and 10 find each other; 90 finds 100 of another class first, then 70.
  const Recall recall = recall_of(net, circle({0.0, 10.0, 90.0, 100.0, 70.0}, {0, 0, 1, 2, 1}));
  EXPECT_EQ(recall.images, 5);
  EXPECT_NEAR(recall.at_1, 100.0 * 3.0 / 5.0, 1e-9);  // 0, 10 and 70
  EXPECT_NEAR(recall.at_5, 100.0 * 4.0 / 5.0, 1e-9);  // all but the only one of its class
}

TEST(Recall, CountsTheFiveNearest) {
  models::MetricNet net = echo_net();
  // The partner of the first image is its fifth nearest, and then its sixth.
  EXPECT_NEAR(recall_of(net, circle({0, 1, 2, 3, 4, 5, 90}, {0, 1, 2, 3, 4, 0, 5})).at_5, 200.0 / 7.0, 1e-9);
  const Recall sixth = recall_of(net, circle({0, 1, 2, 3, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 0}));
  EXPECT_EQ(sixth.at_5, 0.0);
  EXPECT_EQ(sixth.at_1, 0.0);
}

TEST(Recall, AnEmbeddingThatIsNotFiniteFindsNothing) {
  models::MetricNet net = echo_net();
  const double nan = std::nan("");
  const Recall recall = recall_of(net, circle({nan, nan, 0.0, 5.0}, {0, 0, 1, 1}));
  EXPECT_EQ(recall.at_1, 50.0);
}

data::Dataset four_classes() {
  data::Dataset dataset = testing::tiny_dataset();
  dataset.plain_train = dataset.train;
  return dataset;
}

TEST(UnseenClasses, AreTestedAndNotTrainedOn) {
  const data::Dataset dataset = data::with_unseen_classes(four_classes(), 1);
  EXPECT_EQ(dataset.description.classes, (std::vector<std::string>{"a", "b", "c"}));
  const auto labels_of = [](const data::Split& split) {
    return std::set<int64_t>(split.labels().begin(), split.labels().end());
  };
  EXPECT_EQ(labels_of(*dataset.train), (std::set<int64_t>{0, 1, 2}));
  EXPECT_EQ(labels_of(*dataset.test), (std::set<int64_t>{3}));
  EXPECT_EQ(dataset.train, dataset.plain_train);
  const data::Batch batch = dataset.test->load({{0, 0}, {4, 4}});
  EXPECT_TRUE(torch::equal(batch.labels, torch::tensor({3, 3}, torch::kLong)));
  const data::Batch all = testing::tiny_dataset().test->load({{3, 0}, {19, 1}});
  EXPECT_TRUE(torch::equal(batch.images, all.images));
}

TEST(UnseenClasses, NeedImages) {
  const auto problem = [](data::Dataset dataset, int64_t unseen) -> std::string {
    try {
      data::with_unseen_classes(std::move(dataset), unseen);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(problem(four_classes(), 3),
            "--unseen must be from 1 to 2, so that 2 of the 4 classes of tiny are trained on, got 3");
  EXPECT_NE(problem(four_classes(), 0).find("--unseen must be from 1 to 2"), std::string::npos);
  data::Dataset two = four_classes();
  two.description.classes.resize(2);
  EXPECT_EQ(problem(two, 1),
            "--objective metric needs at least 3 classes, 2 to train on and 1 unseen; tiny has 2");
  data::Dataset few = four_classes();
  few.test = std::make_shared<TinySplit>(torch::zeros({3, 1, 8, 8}), std::vector<int64_t>{2, 2, 3});
  EXPECT_NE(problem(few, 1).find("'d' has 1"), std::string::npos) << problem(few, 1);
}

// The patterns of the classes differ, so a trained net finds the unseen ones, too.
TEST(MetricRun, ImprovesRecall) {
  Config config = testing::tiny_config();
  config.objective = Objective::kMetric;
  config.embedding = 8;
  Trainer trainer(config, data::with_unseen_classes(four_classes(), 2));
  const record::EvaluationRecord before = trainer.evaluate_test();
  EXPECT_EQ(before.split, "unseen");
  EXPECT_EQ(before.images, 10);
  double first = 0.0, last = 0.0;
  for (int64_t i = 0; i < config.steps; ++i) {
    last = trainer.step().loss;
    if (i == 0) first = last;
  }
  EXPECT_LT(last, first);
  const record::EvaluationRecord after = trainer.evaluate_test();
  EXPECT_GE(after.averaged.accuracy, 50.0);
  EXPECT_GE(after.recall_at_5.value(), after.averaged.accuracy);
}

}  // namespace
}  // namespace renorm::train
