#include "train/trainer.h"

#include <cmath>
#include <limits>

#include "base/errors.h"
#include "base/random.h"
#include "support.h"
#include "train/build_model.h"

namespace renorm::train {
namespace {

using testing::expect_parts;
using testing::message_of;
using testing::tiny_config;
using testing::tiny_dataset;
using testing::TinySplit;

Trainer tiny_trainer(const std::function<void(Config&)>& change = [](Config&) {}) {
  Config config = tiny_config();
  change(config);
  data::Dataset dataset = tiny_dataset();
  const Config whole = resolved(config, dataset.train->size());
  return Trainer(whole, std::move(dataset));
}

void take_steps(Trainer& trainer, int64_t count) {
  for (int64_t i = 0; i < count; ++i) trainer.step();
}

// The maximum difference of a tensor relative to its maximum value, over all tensors of the model.
double difference(Trainer& a, Trainer& b) {
  const auto left = named_state(a.model());
  const auto right = named_state(b.model());
  double worst = 0.0;
  for (size_t i = 0; i < left.size(); ++i) {
    const torch::Tensor x = left[i].tensor.detach().to(torch::kDouble);
    const torch::Tensor y = right[i].tensor.detach().to(torch::kDouble);
    const double scale = std::max(1e-3, y.abs().max().item<double>());
    worst = std::max(worst, (x - y).abs().max().item<double>() / scale);
  }
  return worst;
}

// Parameters, averages, images and the optimizer's state in double.
class DoubleTrainer : public ::testing::Test {
 protected:
  void SetUp() override { torch::set_default_dtype(caffe2::TypeMeta::Make<double>()); }
  void TearDown() override { torch::set_default_dtype(caffe2::TypeMeta::Make<float>()); }

  static std::unique_ptr<Trainer> make(const std::function<void(Config&)>& change) {
    Config config = tiny_config();
    change(config);
    data::Dataset dataset = tiny_dataset();
    const Config whole = resolved(config, dataset.train->size());
    const models::MakeNorm norm = norm_of(whole);
    const auto double_norm = [norm](int64_t channels, Activation activation) {
      torch::nn::AnyModule layer = norm(channels, activation);
      layer.ptr()->to(torch::kDouble);
      return layer;
    };
    auto trainer = std::make_unique<Trainer>(whole, std::move(dataset), double_norm);
    trainer->model().computation.dtype = torch::kDouble;
    return trainer;
  }
};

// Another order of sums, and nothing else. Sums of 2,048 terms differ by some 1e-14 of their size, and 50
// steps amplify that less than tenfold: measured with a nudge of the weights, 2.2 times. So 1e-10 is far
// above rounding and far below any mistake.
constexpr double kOtherOrder = 1e-10;

TEST_F(DoubleTrainer, GivesTheSameWhateverThePassesAre) {
  const auto passes = [](int64_t chunk) { return make([chunk](Config& config) { config.chunk = chunk; }); };
  const auto whole = passes(0), groups = passes(4), uneven = passes(13);
  for (const auto* trainer : {&whole, &groups, &uneven}) take_steps(**trainer, 50);
  EXPECT_LE(difference(*groups, *whole), kOtherOrder);
  EXPECT_LE(difference(*uneven, *whole), kOtherOrder);
}

TEST_F(DoubleTrainer, GivesTheSameInBothMemoryFormats) {
  const auto in = [](MemoryFormat format) {
    return make([format](Config& config) { config.memory_format = format; });
  };
  const auto nchw = in(MemoryFormat::kNchw), last = in(MemoryFormat::kChannelsLast);
  for (const auto* trainer : {&nchw, &last}) take_steps(**trainer, 10);
  EXPECT_LE(difference(*last, *nchw), kOtherOrder);
}

// In float a value may lie so close to the kink of a ReLU that another order of sums puts it on the other
// side, and its gradient comes or goes: the share of one position of one example, of order one, at the
// learning rate. The bound is ten of them that last for the whole training. Without a kink in reach the
// difference is 1e-6.
double kink_bound(const Trainer& trainer, int steps) {
  const auto values = static_cast<double>(trainer.pass() * trainer.dataset().train->pixels());
  return 10.0 * trainer.config().lr * steps / values;
}

TEST(Trainer, GivesTheSameInFloatUpToKinksOfRelus) {
  Trainer whole = tiny_trainer();
  Trainer groups = tiny_trainer([](Config& config) { config.chunk = 4; });
  Trainer uneven = tiny_trainer([](Config& config) { config.chunk = 13; });
  EXPECT_EQ(whole.pass(), 32);
  EXPECT_EQ(groups.pass(), 4);
  EXPECT_EQ(uneven.pass(), 12);
  constexpr int kSteps = 50;
  for (Trainer* trainer : {&whole, &groups, &uneven}) take_steps(*trainer, kSteps);
  const double bound = kink_bound(whole, kSteps);
  EXPECT_LE(difference(groups, whole), bound);
  EXPECT_LE(difference(uneven, whole), bound);
}

TEST(Trainer, GivesTheSameInFloatInBothMemoryFormatsUpToKinksOfRelus) {
  Trainer nchw = tiny_trainer([](Config& config) { config.memory_format = MemoryFormat::kNchw; });
  Trainer last = tiny_trainer([](Config& config) { config.memory_format = MemoryFormat::kChannelsLast; });
  constexpr int kSteps = 10;
  for (Trainer* trainer : {&nchw, &last}) take_steps(*trainer, kSteps);
  EXPECT_LE(difference(last, nchw), kink_bound(nchw, kSteps));
}

TEST(Trainer, LearnsTheTinySet) {
  Trainer trainer = tiny_trainer([](Config& config) {
    config.optimizer = OptimizerKind::kAdamw;
    config.lr_schedule = LrSchedule::kConstant;
    config.lr = 0.02;
  });
  const double before = trainer.evaluate_test().raw.accuracy;
  const double first_loss = trainer.step().loss;
  take_steps(trainer, 48);
  EXPECT_LT(trainer.step().loss, 0.5 * first_loss);
  EXPECT_GT(trainer.evaluate_test().raw.accuracy, before);
}

TEST(Trainer, MovesTheAveragesOnceAStepByTheMeanOverTheGroups) {
  Trainer trainer = tiny_trainer();
  const Config& config = trainer.config();
  const std::vector<NamedLayer> layers = batch_renorm_layers(trainer.model());
  const torch::Tensor weight = trainer.model().parameters().front().detach().clone();
  data::Sampler sampler(data::parse_sampler(config.sampler), {4, 8, 4, false, false},
                        trainer.dataset().train->labels(), 4, config.seed);
  std::vector<data::Draw> draws;
  for (const int64_t index : sampler.step(0)) draws.push_back({index, 0});
  trainer.step();

  const torch::NoGradGuard no_grad;
  const torch::Tensor x = torch::conv2d(trainer.dataset().train->load(draws).images, weight, {}, 1, 1);
  const torch::Tensor groups =
      x.reshape({8, 4, 8, 64}).permute({0, 2, 1, 3}).reshape({8, 8, 256}).to(torch::kDouble);
  const torch::Tensor mean = groups.mean(2);
  const torch::Tensor std = (groups.var(2, /*unbiased=*/false) + config.norm_eps).sqrt();
  const torch::Tensor expected_mean = config.norm_momentum * mean.mean(0);
  const torch::Tensor expected_std = 1.0 + config.norm_momentum * (std.mean(0) - 1.0);
  EXPECT_EQ(layers.front().layer->step(), 1);
  EXPECT_TRUE(
      torch::allclose(layers.front().layer->running_mean.to(torch::kDouble), expected_mean, 1e-5, 1e-7));
  EXPECT_TRUE(
      torch::allclose(layers.front().layer->running_std.to(torch::kDouble), expected_std, 1e-5, 1e-7));
}

// One step of plain gradient descent is weight - lr * gradient of the mean loss over all examples.
TEST(Trainer, FollowsTheMeanGradientOverAllExamplesOfTheStep) {
  const auto plain = [](Config& config) {
    config.optimizer = OptimizerKind::kSgd;
    config.lr_schedule = LrSchedule::kConstant;
    config.lr = 0.1;
    config.norm = NormKind::kBatchnorm;
    config.workers = 2;
    config.microbatch = 8;
  };
  Trainer trainer = tiny_trainer(plain);
  const auto reference = build_model(trainer.config(), trainer.dataset().description);
  data::Sampler sampler(data::parse_sampler("iid"), {2, 8, 8, false, false},
                        trainer.dataset().train->labels(), 4, trainer.config().seed);
  std::vector<data::Draw> draws;
  for (const int64_t index : sampler.step(0)) draws.push_back({index, 0});
  const data::Batch batch = trainer.dataset().train->load(draws);
  torch::nn::functional::cross_entropy(reference->forward(batch.images), batch.labels).backward();
  trainer.step();
  const auto moved = named_parameters(trainer.model());
  const auto start = named_parameters(*reference);
  for (size_t i = 0; i < moved.size(); ++i) {
    const torch::Tensor expected = start[i].tensor.detach() - 0.1 * start[i].tensor.grad();
    EXPECT_TRUE(torch::allclose(moved[i].tensor.detach(), expected, 1e-5, 1e-6)) << moved[i].name;
  }
}

TEST(Trainer, SameSeedGivesTheSameBytes) {
  Trainer a = tiny_trainer();
  Trainer b = tiny_trainer();
  Trainer other = tiny_trainer([](Config& config) { config.seed = 2; });
  for (Trainer* trainer : {&a, &b, &other}) take_steps(*trainer, 5);
  EXPECT_EQ(a.encode(), b.encode());
  EXPECT_NE(a.encode(), other.encode());
}

// Loading ahead draws the same examples with the same tickets, also after a restore.
TEST(Trainer, LoadingAheadChangesNothing) {
  const auto trainer_of = [](bool slow) {
    data::Dataset dataset = tiny_dataset();
    for (const auto& split : {dataset.train, dataset.test}) {
      std::const_pointer_cast<TinySplit>(std::static_pointer_cast<const TinySplit>(split))->slow = slow;
    }
    Config config = tiny_config();
    config.chunk = 12;
    return std::make_unique<Trainer>(resolved(config, dataset.train->size()), std::move(dataset));
  };
  const auto plain = trainer_of(false);
  const auto ahead = trainer_of(true);
  for (Trainer* trainer : {plain.get(), ahead.get()}) take_steps(*trainer, 4);
  const auto restored = trainer_of(true);
  take_steps(*restored, 2);
  restored->restore(plain->encode(), 4, "folder");
  for (Trainer* trainer : {plain.get(), ahead.get(), restored.get()}) take_steps(*trainer, 4);
  EXPECT_EQ(ahead->encode(), plain->encode());
  EXPECT_EQ(restored->encode(), plain->encode());
  EXPECT_EQ(ahead->evaluate_test().raw.loss, plain->evaluate_test().raw.loss);
}

// Activations of 8 bits of mantissa: the loss agrees to their rounding, and what is kept stays float.
TEST(Trainer, ComputesInBfloat16WithFloatParametersAndAverages) {
  const auto learning = [](Config& config) {
    config.optimizer = OptimizerKind::kAdamw;
    config.lr_schedule = LrSchedule::kConstant;
    config.lr = 0.02;
  };
  Trainer exact = tiny_trainer(learning);
  Trainer rounded = tiny_trainer([&](Config& config) {
    learning(config);
    config.dtype = Dtype::kBf16;
  });
  const double loss = exact.step().loss;
  EXPECT_NEAR(rounded.step().loss, loss, 0.02 * loss);
  EXPECT_NE(rounded.encode(), exact.encode());
  take_steps(rounded, 40);
  EXPECT_LT(rounded.step().loss, 0.5 * loss);
  for (const NamedTensor& named : named_state(rounded.model())) {
    if (!named.tensor.is_floating_point()) continue;
    EXPECT_EQ(named.tensor.scalar_type(), torch::kFloat) << named.name;
  }
}

// The auxiliary classifier has a gradient only if its loss is part of the step's loss. The reported loss is
// that of the main classifier.
TEST(Trainer, LearnsFromTheAuxiliaryHeadToo) {
  data::Dataset dataset = tiny_dataset();
  dataset.description.channels = 3;
  dataset.description.height = dataset.description.width = 299;
  torch::manual_seed(1);
  dataset.train = std::make_shared<TinySplit>(torch::randn({2, 3, 299, 299}), std::vector<int64_t>{0, 1});
  Config config = tiny_config();
  config.model = "inception-v3:aux";
  config.workers = 1;
  config.minibatch = config.microbatch = 2;
  Trainer trainer(resolved(config, 2), dataset);
  const auto head = [&] {
    for (const NamedTensor& named : named_parameters(trainer.model())) {
      if (named.name == "AuxLogits.fc.weight") return named.tensor.detach().clone();
    }
    return torch::Tensor();
  };
  const torch::Tensor before = head();
  ASSERT_TRUE(before.defined());
  EXPECT_NEAR(trainer.step().loss, std::log(4.0), 0.5);
  EXPECT_FALSE(torch::equal(head(), before));
}

TEST(Trainer, RestoredInTheMiddleItGoesOnExactly) {
  for (const Choice<OptimizerKind>& optimizer : Choices<OptimizerKind>::kAll) {
    const auto kind = [optimizer](Config& config) {
      config.optimizer = optimizer.value;
      if (optimizer.value != OptimizerKind::kAdamw) config.momentum = 0.9;
      config.label_smoothing = 0.1;
      config.clip_gradient = 1.0;
      config.weight_decay = 1e-4;
    };
    Trainer whole = tiny_trainer(kind);
    Trainer first = tiny_trainer(kind);
    take_steps(whole, 6);
    take_steps(first, 3);
    Trainer second = tiny_trainer(kind);
    second.restore(first.encode(), 3, "checkpoint");
    take_steps(second, 3);
    EXPECT_EQ(whole.encode(), second.encode()) << optimizer.name;
  }
}

TEST(Trainer, RefusesTensorsOfAnotherModel) {
  Trainer trainer = tiny_trainer();
  Trainer other = tiny_trainer([](Config& config) { config.model = "convnet:8,16/2"; });
  expect_parts(message_of<DataError>([&] { other.restore(trainer.encode(), 1, "DIR/step-1"); }),
               {"DIR/step-1/model.safetensors", "weight"});
}

TEST(Trainer, NamesTheExampleWhoseInputIsNotFinite) {
  data::Dataset dataset = tiny_dataset();
  torch::Tensor images = dataset.train
                             ->load([&] {
                               std::vector<data::Draw> all;
                               for (int64_t i = 0; i < dataset.train->size(); ++i) all.push_back({i, 0});
                               return all;
                             }())
                             .images;
  images[17][0][3][3] = std::numeric_limits<float>::quiet_NaN();
  dataset.train = std::make_shared<testing::TinySplit>(images, dataset.train->labels());
  Trainer trainer(resolved(tiny_config(), dataset.train->size()), dataset);
  // 64 images, 32 per step: the example comes in the first or the second step.
  auto before = trainer.encode();
  const std::string message = message_of<NonFiniteError>([&] {
    trainer.step();
    before = trainer.encode();
    trainer.step();
  });
  expect_parts(message, {"step", "example 17", "not finite"});
  EXPECT_EQ(trainer.encode(), before);
}

TEST(Trainer, NamesTheLayerWhoseStatisticsAreNotFiniteAndChangesNothing) {
  Trainer trainer = tiny_trainer();
  trainer.step();
  {
    const torch::NoGradGuard no_grad;
    trainer.model().parameters().front().view({-1})[0] = std::numeric_limits<float>::infinity();
  }
  const auto before = trainer.encode();
  const std::string message = message_of<NonFiniteError>([&] { trainer.step(); });
  expect_parts(message, {"step 2: ", "norm", "channel"});
  expect_parts(message, {"not finite", "look for overflow"});
  EXPECT_EQ(message.find("step"), message.rfind("step")) << "two numbers of steps in: " << message;
  EXPECT_EQ(trainer.encode(), before);
}

TEST(Trainer, NamesTheParameterWhoseGradientIsNotFiniteAndChangesNothing) {
  Trainer trainer = tiny_trainer();
  trainer.step();
  const auto parameters = named_parameters(trainer.model());
  const torch::Tensor& last = parameters.back().tensor;
  const unsigned hook = last.register_hook(
      [](const torch::Tensor& gradient) { return gradient * std::numeric_limits<float>::quiet_NaN(); });
  const auto before = trainer.encode();
  expect_parts(message_of<NonFiniteError>([&] { trainer.step(); }),
               {"step 2", "gradient of '" + parameters.back().name + "'"});
  EXPECT_EQ(trainer.encode(), before);
  last.remove_hook(hook);
  EXPECT_NO_THROW(trainer.step());
}

TEST(Trainer, ClipsTheGradientAndReportsItsNormBefore) {
  Trainer free = tiny_trainer([](Config& config) { config.optimizer = OptimizerKind::kSgd; });
  Trainer clipped = tiny_trainer([](Config& config) {
    config.optimizer = OptimizerKind::kSgd;
    config.clip_gradient = 1e-3;
  });
  const auto start = named_parameters(clipped.model());
  std::vector<torch::Tensor> before;
  before.reserve(start.size());
  for (const NamedTensor& parameter : start) before.push_back(parameter.tensor.detach().clone());
  const StepResult result = clipped.step();
  EXPECT_DOUBLE_EQ(result.gradient_norm, free.step().gradient_norm);
  double moved = 0.0;
  for (size_t i = 0; i < before.size(); ++i) {
    moved += (start[i].tensor.detach() - before[i]).to(torch::kDouble).square().sum().item<double>();
  }
  EXPECT_NEAR(std::sqrt(moved), 1e-3 * result.learning_rate, 1e-3 * 1e-3 * result.learning_rate);
}

TEST(Trainer, WorksWithEveryNorm) {
  for (const Choice<NormKind>& norm : Choices<NormKind>::kAll) {
    Trainer trainer = tiny_trainer([norm](Config& config) { config.norm = norm.value; });
    take_steps(trainer, 3);
    const bool native = norm.value == NormKind::kNative;
    const bool ours = norm.value == NormKind::kBatchnorm || norm.value == NormKind::kRenorm;
    EXPECT_EQ(trainer.norm_layer_count(), ours ? 2 : 0) << norm.name;
    EXPECT_EQ(trainer.pass(), native ? 4 : 32) << norm.name;
  }
}

TEST(Trainer, TheClipScheduleFollowsTheRun) {
  Trainer trainer = tiny_trainer([](Config& config) { config.clip = "hold:2,r:3@12,d:5@7"; });
  for (int64_t step = 0; step < 14; ++step) {
    const StepResult result = trainer.step();
    const ClipLimits expected = ClipSchedule::ramp(2, 3.0, 12, 5.0, 7).at(step);
    EXPECT_DOUBLE_EQ(result.r_max, expected.r_max) << step;
    EXPECT_DOUBLE_EQ(result.d_max, expected.d_max) << step;
  }
  ASSERT_EQ(trainer.clips().size(), 2U);
  EXPECT_GT(trainer.clips().front().r.mean, 0.0);
}

}  // namespace
}  // namespace renorm::train
