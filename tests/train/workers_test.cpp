// The steps of a trainer shared by several processes, which are threads here.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <renorm/nn/model.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../dist/ranks.h"
#include "support.h"
#include "train/build_model.h"
#include "train/evaluate.h"
#include "train/gradient_sum.h"
#include "train/shared_start.h"
#include "train/trainer.h"

namespace renorm::train {
namespace {

using testing::expect_parts;
using testing::message_of;
using testing::Ranks;
using testing::tiny_config;
using testing::tiny_dataset;

using Change = std::function<void(Config&)>;
constexpr int kSteps = 100;

// In double where LibTorch's default dtype is double.
std::unique_ptr<Trainer> make_trainer(const Change& change, dist::Group* group,
                                      data::Dataset dataset = tiny_dataset()) {
  Config config = tiny_config();
  change(config);
  const Config whole = resolved(config, dataset.train->size());
  const torch::Dtype dtype = torch::empty({0}).scalar_type();
  const models::MakeNorm norm = norm_of(whole);
  const auto typed_norm = [norm, dtype](int64_t channels, Activation activation) {
    torch::nn::AnyModule layer = norm(channels, activation);
    layer.ptr()->to(dtype);
    return layer;
  };
  auto trainer = std::make_unique<Trainer>(whole, std::move(dataset), typed_norm, group);
  if (whole.dtype == Dtype::kFloat) trainer->model().computation.dtype = dtype;
  return trainer;
}

std::vector<std::unique_ptr<Trainer>> make_trainers(const Change& change, Ranks& ranks) {
  std::vector<std::unique_ptr<Trainer>> trainers;
  trainers.reserve(static_cast<size_t>(ranks.size()));
  for (int rank = 0; rank < ranks.size(); ++rank) {
    trainers.push_back(make_trainer(change, &ranks.group(rank)));
  }
  return trainers;
}

// The maximum over all tensors of |a - b| / |b|.
double difference(Trainer& a, Trainer& b) {
  const auto left = named_state(a.model());
  const auto right = named_state(b.model());
  double worst = 0.0;
  for (size_t i = 0; i < left.size(); ++i) {
    const torch::Tensor x = left[i].tensor.detach().to(torch::kDouble);
    const torch::Tensor y = right[i].tensor.detach().to(torch::kDouble);
    worst = std::max(worst, (x - y).norm().item<double>() / std::max(1e-3, y.norm().item<double>()));
  }
  return worst;
}

bool same_bits(Trainer& a, Trainer& b) {
  const auto left = named_state(a.model());
  const auto right = named_state(b.model());
  for (size_t i = 0; i < left.size(); ++i) {
    if (!torch::equal(left[i].tensor, right[i].tensor)) return false;
  }
  return true;
}

// A run of several processes beside a run of one. Processes change the order of sums and nothing else. In
// double that stays far below 1e-10 over these steps, and any mistake far above it.
void expect_same_training(int processes, const Change& change) {
  Ranks ranks(processes);
  const std::unique_ptr<Trainer> alone = make_trainer(change, nullptr);
  const auto together = make_trainers(change, ranks);
  std::vector<StepResult> expected;
  expected.reserve(kSteps);
  for (int i = 0; i < kSteps; ++i) expected.push_back(alone->step());
  const auto clips = alone->clips();
  const record::EvaluationRecord evaluation = alone->evaluate_test();
  ranks.in_parallel([&](int rank) {
    for (int i = 0; i < kSteps; ++i) {
      const StepResult result = together[rank]->step();
      EXPECT_NEAR(result.loss, expected[i].loss, 1e-10);
      EXPECT_EQ(result.correct, expected[i].correct);
      EXPECT_EQ(result.examples, expected[i].examples);
      EXPECT_NEAR(result.gradient_norm, expected[i].gradient_norm, 1e-10 * (1.0 + expected[i].gradient_norm));
    }
    together[rank]->check_agreement();
    const auto own_clips = together[rank]->clips();
    ASSERT_EQ(own_clips.size(), clips.size());
    for (size_t i = 0; i < clips.size(); ++i) {
      EXPECT_NEAR(own_clips[i].r_clipped_above, clips[i].r_clipped_above, 1e-10);
      EXPECT_NEAR(own_clips[i].r.mean, clips[i].r.mean, 1e-10);
      EXPECT_NEAR(own_clips[i].d.std, clips[i].d.std, 1e-10);
      EXPECT_NEAR(own_clips[i].d.max, clips[i].d.max, 1e-10);
    }
    const record::EvaluationRecord own = together[rank]->evaluate_test();
    EXPECT_EQ(own.images, evaluation.images);
    EXPECT_EQ(own.averaged.accuracy, evaluation.averaged.accuracy);
    EXPECT_NEAR(own.averaged.loss, evaluation.averaged.loss, 1e-10);
  });
  for (const auto& trainer : together) {
    EXPECT_LE(difference(*trainer, *alone), 1e-10);
    EXPECT_TRUE(same_bits(*trainer, *together[0]));
  }
}

class DoubleWorkers : public ::testing::Test {
 protected:
  void SetUp() override { torch::set_default_dtype(caffe2::TypeMeta::Make<double>()); }
  void TearDown() override { torch::set_default_dtype(caffe2::TypeMeta::Make<float>()); }
};

TEST_F(DoubleWorkers, TwoProcessesTrainAsOne) {
  expect_same_training(2, [](Config&) {});
}

TEST_F(DoubleWorkers, FourProcessesTrainAsOne) {
  expect_same_training(4, [](Config&) {});
}

TEST_F(DoubleWorkers, PassesGradientClippingAndAveragesChangeNothing) {
  expect_same_training(2, [](Config& config) {
    config.chunk = 4;
    config.clip_gradient = 0.5;
    config.ema_decay = 0.9;
    config.label_smoothing = 0.1;
  });
}

TEST_F(DoubleWorkers, SplitPairsAndDealChangeNothing) {
  expect_same_training(2, [](Config& config) {
    config.sampler = "labels:4x2";
    config.split_pairs = true;
    config.microbatch = 0;
  });
  expect_same_training(4, [](Config& config) { config.deal = true; });
}

TEST_F(DoubleWorkers, OtherOptimizersTrainAsOneToo) {
  expect_same_training(2, [](Config& config) {
    config.optimizer = OptimizerKind::kSgd;
    config.momentum = 0.9;
    config.norm = NormKind::kBatchnorm;
  });
}

// One group over all workers, whether one process or four have them.
TEST_F(DoubleWorkers, SynchronizedLayersTrainAsOne) {
  const Change synchronized = [](Config& config) {
    config.sync_norm = true;
    config.minibatch = 2;
    config.microbatch = 0;
  };
  expect_same_training(2, synchronized);
  expect_same_training(4, synchronized);
}

TEST(Workers, KeepTheSameBitsInBfloat16) {
  Ranks ranks(2);
  const auto trainers = make_trainers([](Config& config) { config.dtype = Dtype::kBf16; }, ranks);
  ranks.in_parallel([&](int rank) {
    for (int i = 0; i < 5; ++i) trainers[rank]->step();
    trainers[rank]->check_agreement();
  });
  EXPECT_TRUE(same_bits(*trainers[0], *trainers[1]));
}

// Activations have 8 bits, and sums are of float: a process changes the order of those alone. One step,
// because a rounding to 8 bits that falls on the other side is 0.4 % of a value.
TEST(Workers, TakeTheSameStepInBfloat16) {
  const Change bf16 = [](Config& config) { config.dtype = Dtype::kBf16; };
  Ranks ranks(2);
  const auto trainers = make_trainers(bf16, ranks);
  const StepResult alone = make_trainer(bf16, nullptr)->step();
  ranks.in_parallel([&](int rank) {
    const StepResult result = trainers[rank]->step();
    EXPECT_NEAR(result.loss, alone.loss, 4e-3 * alone.loss);
    EXPECT_NEAR(result.gradient_norm, alone.gradient_norm, 4e-3 * alone.gradient_norm);
  });
}

// Counts the images that are loaded.
class CountingSplit : public data::Split {
 public:
  CountingSplit(std::shared_ptr<const data::Split> split, std::atomic<int64_t>* count)
      : split_(std::move(split)), count_(count) {}
  const std::vector<int64_t>& labels() const override { return split_->labels(); }
  int64_t pixels() const override { return split_->pixels(); }
  data::Batch load(const std::vector<data::Draw>& draws) const override {
    *count_ += static_cast<int64_t>(draws.size());
    return split_->load(draws);
  }

 private:
  std::shared_ptr<const data::Split> split_;
  std::atomic<int64_t>* count_;
};

TEST(Workers, LoadOnlyTheirOwnImages) {
  Ranks ranks(2);
  std::atomic<int64_t> counts[2] = {};
  int64_t examples = 0;
  ranks.in_parallel([&](int rank) {
    data::Dataset dataset = tiny_dataset();
    dataset.train = std::make_shared<CountingSplit>(dataset.train, &counts[rank]);
    const auto trainer = make_trainer([](Config&) {}, &ranks.group(rank), std::move(dataset));
    const StepResult result = trainer->step();
    if (rank == 0) examples = result.examples;
  });
  EXPECT_EQ(counts[0], examples / 2);
  EXPECT_EQ(counts[1], examples / 2);
}

TEST(Workers, SumGradientsAndStatisticsOnce) {
  Ranks ranks(2);
  const auto trainers = make_trainers([](Config&) {}, ranks);
  ranks.in_parallel([&](int rank) { trainers[rank]->step(); });
  int64_t bytes = collected(trainers[0]->model()).nbytes();
  for (const torch::Tensor& parameter : trainers[0]->model().parameters()) bytes += parameter.nbytes();
  EXPECT_GE(ranks.group(0).traffic().bytes, bytes);
  // Loss, accuracy, errors and requests to stop: 44 bytes.
  EXPECT_LE(ranks.group(0).traffic().bytes, bytes + 44);
}

TEST(Workers, OtherVersionsAreRefused) {
  Ranks ranks(2);
  const auto errors = ranks.outcomes([&](int rank) {
    RunRequest request;
    request.versions = {{"libtorch", rank == 0 ? "1.13.1" : "2.6.0"}};
    check_same_request(request, ranks.group(rank));
  });
  expect_parts(message_of<UsageError>([&] { std::rethrow_exception(errors[0]); }),
               {"rank 1 on '", "libtorch 2.6.0", "libtorch 1.13.1 on rank 0"});
  EXPECT_THROW(std::rethrow_exception(errors[1]), dist::ReportedElsewhere);
}

TEST(Workers, ARequestToStopReachesAll) {
  Ranks ranks(2);
  const auto trainers = make_trainers([](Config&) {}, ranks);
  ranks.in_parallel([&](int rank) {
    EXPECT_FALSE(trainers[rank]->step().stop);
    EXPECT_TRUE(trainers[rank]->step(/*stop=*/rank == 1).stop);
  });
}

// Also rank 0, which the others outvote, and also in the averaged weights alone.
TEST(Workers, ARankThatDiffersIsNamed) {
  Ranks ranks(3);
  for (const int other : {2, 0}) {
    const auto trainers = make_trainers(
        [](Config& config) {
          config.workers = 3;
          config.ema_decay = 0.9;
        },
        ranks);
    {
      const torch::NoGradGuard no_grad;
      trainers[other]->average()->averages()[0].tensor.view(-1)[0] += 1e-3;
    }
    const auto errors = ranks.outcomes([&](int rank) { trainers[rank]->check_agreement(); });
    expect_parts(message_of<InternalError>([&] { std::rethrow_exception(errors[0]); }),
                 {fmt::format("the weights of rank {} on '", other), "differ"});
    EXPECT_THROW(std::rethrow_exception(errors[1]), dist::ReportedElsewhere);
  }
}

TEST(Workers, ADifferenceOfWeightsIsFound) {
  Ranks ranks(3);
  const auto trainers = make_trainers([](Config& config) { config.workers = 3; }, ranks);
  {
    const torch::NoGradGuard no_grad;
    trainers[2]->model().parameters()[0].view(-1)[0] += 1e-3;
  }
  const auto errors = ranks.outcomes([&](int rank) { trainers[rank]->check_agreement(); });
  expect_parts(message_of<InternalError>([&] { std::rethrow_exception(errors[0]); }),
               {"rank 2 on '", "differ"});
  EXPECT_THROW(std::rethrow_exception(errors[1]), dist::ReportedElsewhere);
}

// Rank 1 fails; all discard the step, and the weights stay the same everywhere.
TEST_F(DoubleWorkers, AnErrorInOneRankUndoesTheStepEverywhere) {
  Ranks ranks(2);
  const auto trainers = make_trainers([](Config&) {}, ranks);
  const auto reference = make_trainer([](Config&) {}, nullptr);
  const auto layers = batch_renorm_layers(trainers[1]->model());
  const torch::Tensor kept = layers[0].layer->running_std.clone();
  layers[0].layer->running_std.fill_(-1.0);
  const auto errors = ranks.outcomes([&](int rank) { trainers[rank]->step(); });
  EXPECT_TRUE(errors[0]);
  EXPECT_THROW(std::rethrow_exception(errors[1]), dist::ReportedElsewhere);
  EXPECT_EQ(trainers[0]->steps_done(), 0);
  layers[0].layer->running_std.copy_(kept);
  EXPECT_TRUE(same_bits(*trainers[0], *reference));
  EXPECT_TRUE(same_bits(*trainers[1], *reference));
  ranks.in_parallel([&](int rank) { trainers[rank]->step(); });
  reference->step();
  EXPECT_LE(difference(*trainers[0], *reference), 1e-10);
}

TEST(Workers, RefuseWhatCannotBeShared) {
  Ranks ranks(3);
  expect_parts(message_of<UsageError>([&] { make_trainer([](Config&) {}, &ranks.group(0)); }),
               {"--workers must be a multiple of the 3 processes, got 4"});
  const auto native = [](Config& config) {
    config.workers = 3;
    config.norm = NormKind::kNative;
  };
  expect_parts(message_of<UsageError>([&] { make_trainer(native, &ranks.group(0)); }), {"--norm native"});
}

// Several buffers, of which the last pass starts each as soon as it is complete.
TEST(GradientSum, SumsTheLastPassAndWhatWasAddedBefore) {
  Ranks ranks(2);
  std::vector<std::vector<NamedTensor>> parameters(2);
  std::vector<std::unique_ptr<GradientSum>> sums;
  for (int rank = 0; rank < 2; ++rank) {
    for (const int64_t size : {10, 20, 30}) {
      parameters[rank].push_back({std::to_string(size), torch::ones({size}, torch::requires_grad())});
    }
    sums.push_back(std::make_unique<GradientSum>(ranks.group(rank), parameters[rank], /*buffer_bytes=*/100));
  }
  for (int step = 0; step < 2; ++step) {
    ranks.in_parallel([&](int rank) {
      const auto pass = [&](double factor) {
        torch::Tensor loss = torch::zeros({});
        for (const NamedTensor& one : parameters[rank]) {
          if (one.name != "20") loss = loss + factor * one.tensor.sum();  // "20" has no gradient
        }
        loss.backward();
      };
      sums[rank]->begin();
      pass(1.0);
      sums[rank]->expect_last_pass();
      pass(rank == 0 ? 10.0 : 100.0);
      sums[rank]->finish_backward(/*failed=*/false);
      EXPECT_FALSE(sums[rank]->wait());
    });
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_TRUE(torch::equal(parameters[rank][0].tensor.grad(), torch::full({10}, 112.0)));
      EXPECT_TRUE(torch::equal(parameters[rank][1].tensor.grad(), torch::zeros({20})));
      EXPECT_TRUE(torch::equal(parameters[rank][2].tensor.grad(), torch::full({30}, 112.0)));
    }
  }
  // A failure in one process reaches all.
  ranks.in_parallel([&](int rank) {
    sums[rank]->begin();
    sums[rank]->finish_backward(/*failed=*/rank == 1);
    EXPECT_TRUE(sums[rank]->wait());
  });
}

}  // namespace
}  // namespace renorm::train
