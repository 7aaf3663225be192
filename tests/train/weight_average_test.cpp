#include "train/weight_average.h"

#include <gtest/gtest.h>
#include <renorm/nn/batch_renorm.h>
#include <torch/torch.h>

#include <cmath>
#include <stdexcept>

#include "train/optimizer.h"
#include "train/tensor_file.h"

namespace renorm::train {
namespace {

constexpr double kDecay = 0.9;
constexpr double kFloatTolerance = 1e-6;

// A parameter, a norm with its averages, and buffers of other kinds.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    linear = register_module("linear", torch::nn::Linear(6, 4));
    norm = register_module("norm", BatchRenorm1d(BatchRenormOptions(4).scale(false)));
    wide = register_buffer("wide", torch::zeros({3}, torch::kDouble));
    flag = register_buffer("flag", torch::zeros({2}, torch::kBool));
    narrow = register_buffer("narrow", torch::zeros({2}, torch::kBFloat16));
  }
  torch::Tensor forward(const torch::Tensor& x) { return norm->forward(linear->forward(x)); }

  torch::nn::Linear linear{nullptr};
  BatchRenorm1d norm{nullptr};
  torch::Tensor wide;
  torch::Tensor flag;
  torch::Tensor narrow;
};
TORCH_MODULE(Net);

class WeightAverageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(1702);
    net = Net();
  }

  // Everything that floats becomes something else.
  void change() {
    const torch::NoGradGuard no_grad;
    for (auto& named : named_state(*net)) {
      if (named.tensor.is_floating_point()) named.tensor.copy_(torch::randn_like(named.tensor));
    }
    net->norm->num_batches_tracked.add_(1);
    net->flag.logical_not_();
  }

  Net net{nullptr};
};

torch::Tensor tensor_named(const std::vector<NamedTensor>& all, const std::string& name) {
  for (const auto& named : all) {
    if (named.name == name) return named.tensor;
  }
  throw std::runtime_error("no tensor " + name);
}

double error(const torch::Tensor& actual, const torch::Tensor& expected) {
  return (actual.detach().to(torch::kDouble) - expected.to(torch::kDouble)).abs().max().item<double>();
}

TEST_F(WeightAverageTest, HoldsEveryParameterAndBufferOnceInTheModelsOrder) {
  WeightAverage average(*net, kDecay);
  std::vector<std::string> names;
  for (const auto& named : average.averages()) names.push_back(named.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"linear.weight", "linear.bias", "norm.bias", "wide", "flag", "narrow",
                                      "norm.running_mean", "norm.running_std", "norm.num_batches_tracked"}));
  EXPECT_EQ(named_parameters(*net).size(), 3u);
  EXPECT_EQ(encode_tensors(average.averages()), encode_tensors(named_state(*net)));
}

TEST_F(WeightAverageTest, WarmsUp) {
  WeightAverage average(*net, 0.99);
  EXPECT_DOUBLE_EQ(average.decay_at(0), 0.1);
  EXPECT_DOUBLE_EQ(average.decay_at(1), 2.0 / 11.0);
  EXPECT_DOUBLE_EQ(average.decay_at(100), 101.0 / 110.0);
  EXPECT_LT(average.decay_at(889), 0.99);
  EXPECT_EQ(average.decay_at(891), 0.99);
  EXPECT_EQ(average.decay_at(1'000'000), 0.99);
}

// average_T = sum over t of (1 - decay_t) decay_{t+1} ... decay_{T-1} value_t + decay_0 ... decay_{T-1} start
TEST_F(WeightAverageTest, EqualsTheClosedFormAfterASequenceOfSteps) {
  constexpr int64_t kSteps = 120;
  WeightAverage average(*net, kDecay);
  const std::vector<std::string> names = {"linear.weight", "norm.bias", "norm.running_mean",
                                          "norm.running_std", "wide"};
  std::vector<std::vector<torch::Tensor>> values(names.size());
  const auto remember = [&] {
    const auto state = named_state(*net);
    for (size_t i = 0; i < names.size(); ++i) {
      values[i].push_back(tensor_named(state, names[i]).detach().to(torch::kDouble, false, true));
    }
  };
  remember();
  for (int64_t t = 0; t < kSteps; ++t) {
    change();
    remember();
    average.update(t);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    torch::Tensor expected = torch::zeros_like(values[i][0]);
    double kept = 1.0;
    for (int64_t t = kSteps - 1; t >= 0; --t) {
      const double decay = std::min(kDecay, static_cast<double>(1 + t) / static_cast<double>(10 + t));
      expected += kept * (1.0 - decay) * values[i][static_cast<size_t>(t + 1)];
      kept *= decay;
    }
    expected += kept * values[i][0];
    const auto actual = tensor_named(average.averages(), names[i]);
    EXPECT_LE(error(actual, expected), names[i] == "wide" ? 1e-14 : kFloatTolerance) << names[i];
  }
}

TEST_F(WeightAverageTest, CopiesIntegersAndAveragesNarrowNumbers) {
  WeightAverage average(*net, kDecay);
  {
    const torch::NoGradGuard no_grad;
    net->norm->num_batches_tracked.fill_(17);
    net->flag.fill_(true);
    net->narrow.fill_(1.0);
  }
  average.update(1'000);
  EXPECT_EQ(tensor_named(average.averages(), "norm.num_batches_tracked").item<int64_t>(), 17);
  EXPECT_TRUE(tensor_named(average.averages(), "flag").all().item<bool>());
  EXPECT_NEAR(tensor_named(average.averages(), "narrow")[0].item<float>(), 0.1f, 0.1f / 256);
}

TEST_F(WeightAverageTest, AValueThatStandsStillIsItsOwnAverage) {
  change();
  WeightAverage average(*net, kDecay);
  for (int64_t t = 0; t < 50; ++t) average.update(t);
  EXPECT_EQ(encode_tensors(average.averages()), encode_tensors(named_state(*net)));
}

TEST_F(WeightAverageTest, FollowsParametersInAnyOrderOfMemory) {
  torch::nn::Conv2d conv(4, 6, 3);
  conv->weight.set_data(conv->weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  WeightAverage average(*conv, kDecay);
  const auto start = conv->weight.detach().clone();
  // The value moves to another order after the average was made.
  const auto next = torch::randn({6, 4, 3, 3});
  conv->weight.set_data(next.clone());
  average.update(1'000);
  EXPECT_LE(error(average.averages()[0].tensor, start * 0.9 + next * 0.1), kFloatTolerance);
}

TEST_F(WeightAverageTest, AppliedSwapsAndRestoresTheBits) {
  WeightAverage average(*net, kDecay);
  change();
  average.update(1'000);
  const std::string values = encode_tensors(named_state(*net));
  const std::string averages = encode_tensors(average.averages());
  ASSERT_NE(values, averages);
  const void* memory = net->linear->weight.data_ptr();
  {
    const WeightAverage::Applied applied(average);
    EXPECT_EQ(encode_tensors(named_state(*net)), averages);
    EXPECT_EQ(encode_tensors(average.averages()), values);
    EXPECT_NE(net->linear->weight.data_ptr(), memory);
    EXPECT_TRUE(net->linear->weight.requires_grad());
  }
  EXPECT_EQ(encode_tensors(named_state(*net)), values);
  EXPECT_EQ(encode_tensors(average.averages()), averages);
  EXPECT_EQ(net->linear->weight.data_ptr(), memory);
}

TEST_F(WeightAverageTest, AppliedReachesMembersOfModules) {
  WeightAverage average(*net, kDecay);
  {
    const torch::NoGradGuard no_grad;
    net->norm->running_mean.fill_(1.0);
    net->wide.fill_(1.0);
  }
  net->eval();
  const auto x = torch::randn({3, 6});
  const auto raw = net->forward(x);
  const WeightAverage::Applied applied(average);
  EXPECT_TRUE(net->norm->running_mean.eq(0.0).all().item<bool>());
  EXPECT_TRUE(net->wide.eq(0.0).all().item<bool>());
  EXPECT_LE(error(net->forward(x), raw + 1.0), 1e-5);  // running_std is 1
}

TEST_F(WeightAverageTest, AppliedRestoresWhenAnExceptionFlies) {
  WeightAverage average(*net, kDecay);
  change();
  const std::string values = encode_tensors(named_state(*net));
  try {
    const WeightAverage::Applied applied(average);
    throw std::runtime_error("from within");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(encode_tensors(named_state(*net)), values);
  average.update(0);
}

TEST_F(WeightAverageTest, TensorsHandedOutStayTheLiveOnes) {
  WeightAverage average(*net, kDecay);
  const auto held = average.averages();
  change();
  { const WeightAverage::Applied applied(average); }
  average.update(5);
  EXPECT_EQ(encode_tensors(held), encode_tensors(average.averages()));
}

TEST_F(WeightAverageTest, CannotMoveOrBeAppliedAgainWhileApplied) {
  WeightAverage average(*net, kDecay);
  const WeightAverage::Applied applied(average);
  EXPECT_THROW(average.update(0), c10::Error);
  EXPECT_THROW(WeightAverage::Applied again(average), c10::Error);
}

// Training with an evaluation in the middle is training without one.
TEST_F(WeightAverageTest, OptimizerGoesOnAfterASwap) {
  Net other;
  for (auto& named : named_state(*other)) {
    const torch::NoGradGuard no_grad;
    named.tensor.copy_(tensor_named(named_state(*net), named.name));
  }
  const auto x = torch::randn({8, 6});
  std::vector<std::string> results;
  for (Net trained : {net, other}) {
    const bool swaps = results.empty();
    OptimizerOptions options;
    options.kind = OptimizerKind::kRmspropTf;
    options.momentum = 0.9;
    const auto optimizer = make_optimizer(options, named_parameters(*trained));
    WeightAverage average(*trained, kDecay);
    for (int64_t step = 0; step < 10; ++step) {
      trained->zero_grad();
      trained->forward(x).square().mean().backward();
      trained->linear->forward(x).square().mean().backward();
      optimizer->step(0.01);
      average.update(step);
      if (swaps && step % 3 == 1) {
        const WeightAverage::Applied applied(average);
        const torch::NoGradGuard no_grad;
        trained->linear->forward(x);
      }
    }
    results.push_back(encode_tensors(named_state(*trained)) + encode_tensors(average.averages()));
  }
  EXPECT_EQ(results[0], results[1]);
}

// A module under two names would otherwise be swapped twice, which is not at all.
TEST_F(WeightAverageTest, SharedTensorsComeOnce) {
  struct Shared : torch::nn::Module {
    Shared() {
      first = register_module("first", torch::nn::Linear(2, 2));
      register_module("second", first);
    }
    torch::nn::Linear first{nullptr};
  };
  const auto shared = std::make_shared<Shared>();
  EXPECT_EQ(named_state(*shared).size(), 2u);
  WeightAverage average(*shared, kDecay);
  const auto start = shared->first->weight.detach().clone();
  {
    const torch::NoGradGuard no_grad;
    shared->first->weight.add_(1.0);
  }
  const WeightAverage::Applied applied(average);
  EXPECT_TRUE(torch::equal(shared->first->weight, start));
}

}  // namespace
}  // namespace renorm::train
