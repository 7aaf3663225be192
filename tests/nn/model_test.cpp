// Functions for all layers of a model, warnings about likely mistakes, and the residual forward.
#include "renorm/nn/model.h"

#include <torch/version.h>

#include <limits>
#include <memory>

#include "nn/warnings.h"
#include "support.h"

namespace renorm::testing {
namespace {

using Model = Seeded;

torch::nn::Sequential net() {
  return torch::nn::Sequential(torch::nn::Conv2d(3, 4, 3), BatchRenorm2d(4), torch::nn::ReLU(),
                               BatchRenorm2d(BatchRenormOptions(4).track_running_stats(false)));
}

torch::Tensor input() { return torch::randn({4, 3, 6, 6}); }

BatchRenorm2dImpl& first(torch::nn::Sequential model) { return *model[1]->as<BatchRenorm2dImpl>(); }

TEST_F(Model, FunctionsReachEveryLayer) {
  auto model = net();
  set_statistics(*model, Statistics::kDeferred);
  set_clip(*model, ClipSchedule::unlimited());
  set_step(*model, 7);
  name_layers(*model);
  EXPECT_EQ(first(model).options.statistics(), Statistics::kDeferred);
  EXPECT_EQ(first(model).options.clip(), ClipSchedule::unlimited());
  EXPECT_EQ(first(model).step(), 7);
  EXPECT_EQ(first(model).options.name(), "1");

  model->forward(input());
  EXPECT_EQ(commit(*model), 1);
  EXPECT_EQ(first(model).step(), 8);
  model->forward(input());
  discard(*model);
  EXPECT_EQ(commit(*model), 0);

  const auto telemetry = clip_telemetry(*model);
  ASSERT_EQ(telemetry.size(), 2U);
  EXPECT_EQ(telemetry[0].path, "1");
  EXPECT_EQ(telemetry[0].telemetry.values, 8);
  clear_clip_telemetry(*model);
  EXPECT_EQ(clip_telemetry(*model)[0].telemetry.values, 0);

  use_batch_statistics(*model, true);
  EXPECT_TRUE(first(model).uses_batch_statistics());
}

TEST_F(Model, ListsLayersOfAConstModelAsConst) {
  const auto model = net();
  const torch::nn::Module& constant = *model;
  const std::vector<ConstNamedLayer> layers = batch_renorm_layers(constant);
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].layer, &first(model));
}

TEST_F(Model, CommitsNoLayerIfTheOptionsOfOneAreWrong) {
  torch::nn::Sequential model{BatchRenorm1d(4), BatchRenorm1d(4)};
  set_statistics(*model, Statistics::kDeferred);
  model->forward(torch::randn({6, 4}));
  const auto layers = batch_renorm_layers(*model);
  const Snapshot before(*layers[0].layer);
  layers[1].layer->options.momentum(2.0);
  expect_message([&] { commit(*model); }, {"renorm::BatchRenorm1d: momentum must be in [0, 1], got 2"});
  EXPECT_TRUE(Snapshot(*layers[0].layer) == before);
  layers[1].layer->options.momentum(0.1);
  EXPECT_EQ(commit(*model), 2);
}

// The first layer's statistics are finite, its output is not.
torch::nn::Sequential model_that_overflows(Statistics statistics) {
  BatchRenorm1d overflows(4);
  const torch::NoGradGuard no_grad;
  overflows->weight.fill_(std::numeric_limits<float>::infinity());
  torch::nn::Sequential model{overflows, BatchRenorm1d(4)};
  set_statistics(*model, statistics);
  return model;
}

TEST_F(Model, StatisticsThatAreNotFiniteLeaveEarlierImmediateLayersMoved) {
  auto model = model_that_overflows(Statistics::kImmediate);
  const auto layers = batch_renorm_layers(*model);
  const Snapshot before(*layers[1].layer);
  EXPECT_THROW(model->forward(torch::randn({6, 4})), NonFiniteStatistics);
  EXPECT_EQ(layers[0].layer->step(), 1);
  EXPECT_GT(layers[0].layer->running_mean.abs().max().item<double>(), 0.0);
  EXPECT_TRUE(Snapshot(*layers[1].layer) == before);
}

TEST_F(Model, DiscardedDeferredStatisticsMoveNothingAfterABatchThatIsNotFinite) {
  auto model = model_that_overflows(Statistics::kDeferred);
  const auto untouched = model->clone();
  try {
    model->forward(torch::randn({6, 4}));
    commit(*model);
    FAIL() << "nothing was thrown";
  } catch (const NonFiniteStatistics&) {
    discard(*model);
  }
  expect_same_state(*model, *untouched);
  EXPECT_EQ(commit(*model), 0);
  expect_same_state(*model, *untouched);
}

// Two copies of a model stand for two processes that share the groups of a step.
TEST_F(Model, CollectedStatisticsOfTwoProcessesMoveTheAveragesAsOne) {
  auto whole = net();
  set_statistics(*whole, Statistics::kDeferred);
  const auto copy = [&] { return std::dynamic_pointer_cast<torch::nn::SequentialImpl>(whole->clone()); };
  const auto left = copy(), right = copy();
  const torch::Tensor a = input(), b = input(), c = input();
  for (const torch::Tensor& x : {a, b, c}) whole->forward(x);
  left->forward(a);
  left->forward(b);
  right->forward(c);
  const torch::Tensor sum = collected(*left) + collected(*right);
  for (const auto& model : {left, right}) {
    set_collected(*model, sum);
    EXPECT_EQ(commit(*model), 1);
  }
  EXPECT_EQ(commit(*whole), 1);
  const auto mean = [](torch::nn::SequentialImpl& model) {
    return batch_renorm_layers(model)[0].layer->running_mean;
  };
  EXPECT_TRUE(torch::equal(mean(*left), mean(*right)));
  // Sums in double, rounded to float once.
  EXPECT_TRUE(torch::allclose(mean(*left), mean(*whole), 0.0, std::numeric_limits<float>::epsilon()));
  EXPECT_EQ(batch_renorm_layers(*left)[0].layer->step(), 1);

  EXPECT_EQ(collected(*left).abs().sum().item<double>(), 0.0);
  expect_message([&] { set_collected(*left, sum.slice(0, 1)); },
                 {"renorm::set_collected: values must be [18] as made by collected(), got [17]"});
}

TEST_F(Model, CollectedStatisticsAreCheckedBeforeAnyLayerTakesThem) {
  torch::nn::Sequential model{BatchRenorm1d(2), BatchRenorm1d(2)};
  set_statistics(*model, Statistics::kDeferred);
  name_layers(*model);
  model->forward(torch::randn({6, 2}));
  const torch::Tensor good = collected(*model);
  const auto refuse = [&](int64_t place, double value, const std::string& text) {
    torch::Tensor bad = good + 1.0;
    bad[place] = value;
    expect_message([&] { set_collected(*model, bad); },
                   {"renorm::set_collected: layer \"1\": values " + text});
    const auto part = bad.slice(0, 5);
    expect_message([&] { batch_renorm_layers(*model)[1].layer->set_collected(part); },
                   {"renorm::BatchRenorm1d \"1\": set_collected: values " + text});
    EXPECT_TRUE(torch::equal(collected(*model), good)) << text;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  refuse(6, std::numeric_limits<double>::quiet_NaN(), "must be finite, got nan at index 1");
  refuse(9, -kInfinity, "must be finite, got -inf at index 4");
  refuse(5, kInfinity, "must be finite, got inf at index 0");
  refuse(5, -1.0, "must begin with a whole number of groups >= 0, got -1");
  refuse(5, 1.5, "must begin with a whole number of groups >= 0, got 1.5");
  set_collected(*model, torch::zeros_like(good));
  EXPECT_EQ(commit(*model), 0);
}

TEST_F(Model, TypeAndSizeOfCollectedStatisticsAreChecked) {
  BatchRenorm1d layer(2);
  const std::string who = "renorm::BatchRenorm1d: set_collected: values must be ";
  expect_message([&] { layer->set_collected(torch::zeros({5})); },
                 {who + "Double [5] on cpu, got Float [5] on cpu"});
  expect_message([&] { layer->set_collected(torch::zeros({4}, torch::kDouble)); }, {"got Double [4] on cpu"});
  expect_message([&] { layer->set_collected({}); }, {who + "a tensor, got an undefined one"});
}

TEST_F(Model, StepIsChecked) {
  auto model = net();
  expect_message([&] { set_step(*model, -1); }, {"step must be >= 0, got -1"});
  expect_message([&] { model[3]->as<BatchRenorm2dImpl>()->set_step(1); }, {"without averages"});
}

// The texts of the warnings that `call` gives.
std::vector<std::string> warnings_of(const std::function<void()>& call) {
#if TORCH_VERSION_MAJOR >= 2
  namespace utils = c10::WarningUtils;
  struct Collect : c10::WarningHandler {
    void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
    std::vector<std::string> texts;
  };
#else
  namespace utils = c10::Warning;
  struct Collect : c10::WarningHandler {
    void process(const c10::SourceLocation& /*place*/, const std::string& text, bool /*verbatim*/) override {
      texts.push_back(text);
    }
    std::vector<std::string> texts;
  };
#endif
  Collect collect;
  const utils::WarningHandlerGuard guard(&collect);
  reset_warnings();
  call();
  return collect.texts;
}

TEST_F(Model, WarnsOnceOfEvaluationDuringTheHold) {
  const auto texts = warnings_of([] {
    auto model = net();
    name_layers(*model);
    for (int i = 0; i < 3; ++i) model->forward(input());
    model->eval();
    model->train();
    model->eval();
  });
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_NE(texts[0].find("renorm::BatchRenorm2d \"1\": after 3 training steps this layer has been plain "
                          "batchnorm so far"),
            std::string::npos)
      << texts[0];
  EXPECT_NE(texts[0].find("ClipSchedule::paper(N)"), std::string::npos) << texts[0];
}

TEST_F(Model, WarnsOfAHoldThatLastsBecauseNothingIsCommitted) {
  const auto evaluate_after = [](int commits) {
    return warnings_of([commits] {
      BatchRenorm1d layer(BatchRenormOptions(4).statistics(Statistics::kDeferred));
      for (int i = 0; i < 3; ++i) {
        layer->forward(torch::randn({6, 4}));
        if (i < commits) layer->commit();
      }
      layer->eval();
    });
  };
  const auto never = evaluate_after(0);
  ASSERT_EQ(never.size(), 1U);
  EXPECT_NE(never[0].find("renorm::BatchRenorm1d: this layer has been plain batchnorm so far, because no "
                          "training step was counted; with deferred statistics, commit() counts one"),
            std::string::npos)
      << never[0];
  const auto once = evaluate_after(1);
  ASSERT_EQ(once.size(), 1U);
  EXPECT_NE(once[0].find("after 1 training step this layer"), std::string::npos) << once[0];
}

TEST_F(Model, DoesNotWarnWithoutReason) {
  const auto evaluate = [](const BatchRenormOptions& options, int steps) {
    return warnings_of([&] {
      BatchRenorm2d layer(options);
      for (int i = 0; i < steps; ++i) layer->forward(torch::randn({4, 4, 3, 3}));
      layer->eval();
      layer->forward(torch::randn({4, 4, 3, 3}));
    });
  };
  EXPECT_TRUE(evaluate(BatchRenormOptions(4), 0).empty());
  EXPECT_TRUE(evaluate(BatchRenormOptions(4).warnings(false), 3).empty());
  EXPECT_TRUE(evaluate(BatchRenormOptions(4).track_running_stats(false), 3).empty());
  EXPECT_TRUE(evaluate(BatchRenormOptions(4).clip(ClipSchedule::batch_norm()), 3).empty());
  EXPECT_TRUE(evaluate(BatchRenormOptions(4).clip(ClipSchedule::constant(3, 5)), 3).empty());
  EXPECT_TRUE(evaluate(BatchRenormOptions(4).clip(ClipSchedule::ramp(1, 3, 9, 5, 9)), 3).empty());
  EXPECT_FALSE(evaluate(BatchRenormOptions(4).clip(ClipSchedule::ramp(1, 3, 9, 5, 9)), 2).empty());
}

// commit() would do nothing: the next immediate forward discards what was collected.
TEST_F(Model, DoesNotAdviseACommitOfImmediateStatistics) {
  const auto texts = warnings_of([] {
    BatchRenorm1d layer(
        BatchRenormOptions(4).clip(ClipSchedule::unlimited()).statistics(Statistics::kDeferred));
    layer->forward(torch::randn({6, 4}));
    set_statistics(*layer, Statistics::kImmediate);
    layer->eval();
    layer->forward(torch::randn({6, 4}));
  });
  EXPECT_TRUE(texts.empty());
}

TEST_F(Model, WarnsOnceOfStatisticsThatWereNotCommitted) {
  const auto texts = warnings_of([] {
    BatchRenorm1d layer(BatchRenormOptions(4)
                            .clip(ClipSchedule::unlimited())
                            .statistics(Statistics::kDeferred)
                            .group_size(2));
    layer->forward(torch::randn({6, 4}));
    layer->eval();
    layer->forward(torch::randn({6, 4}));
    layer->forward(torch::randn({6, 4}));
  });
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_NE(texts[0].find("deferred statistics of 3 groups"), std::string::npos) << texts[0];
  EXPECT_NE(texts[0].find("commit()"), std::string::npos) << texts[0];
}

TEST_F(Model, ResidualIsAddedBeforeTheActivation) {
  for (const auto activation : {Activation::kNone, Activation::kRelu}) {
    BatchRenorm2d plain(BatchRenormOptions(4).clip(ClipSchedule::constant(3, 5)));
    BatchRenorm2d fused(BatchRenormOptions(4).clip(ClipSchedule::constant(3, 5)).activation(activation));
    const auto expected = [&](const torch::Tensor& x, const torch::Tensor& residual) {
      const auto sum = plain->forward(x) + residual;
      return activation == Activation::kRelu ? sum.relu() : sum;
    };
    for (const int mode : {0, 1, 2}) {
      for (BatchRenorm2dImpl* layer : {plain.get(), fused.get()}) {
        layer->train(mode == 0);
        layer->use_batch_statistics(mode == 2);
      }
      const auto x = torch::randn({4, 4, 3, 3});
      const auto residual = torch::randn({4, 4, 3, 3});
      EXPECT_LE(relative_error(fused->forward_residual(x, residual, activation), expected(x, residual)),
                kFloatTolerance)
          << mode;
    }
    EXPECT_TRUE(torch::equal(plain->running_std, fused->running_std));
    const auto x = torch::randn({4, 4, 3, 3});
    expect_message([&] { fused->forward_residual(x, {}); }, {"must be tensors", "undefined"});
    expect_message([&] { fused->forward_residual(x, x.narrow(3, 0, 2)); },
                   {"renorm::BatchRenorm2d: residual must have the sizes of input", "[4, 4, 3, 2]"});
    expect_message([&] { fused->forward_residual(x, x.to(torch::kDouble)); },
                   {"renorm::BatchRenorm2d: residual must have the dtype and device of input", "Double"});
  }
}

}  // namespace
}  // namespace renorm::testing
