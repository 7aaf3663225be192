// renorm demo: what biased minibatches do to batchnorm, and what Batch Renorm does about it.
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <renorm/renorm.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "base/errors.h"
#include "cli/core/commands.h"
#include "cli/core/demo_data.h"
#include "cli/progress.h"

namespace renorm::cli {
namespace {

constexpr int64_t kMinibatch = 8;
constexpr int64_t kMinibatchesAStep = 8;
constexpr int64_t kClassesOfBiased = 1;
constexpr int64_t kPooledSide = 2;
constexpr int64_t kWidth = 16;
constexpr int64_t kTestImages = 4800;
constexpr int64_t kTestBatch = 400;
constexpr double kMomentumOfAverages = 0.01;
constexpr double kLearningRate = 0.1;  // falls to 0, linearly
constexpr double kMomentumOfDescent = 0.9;
constexpr int64_t kMostSteps = 1000000;

struct Arm {
  const char* name;
  bool biased;
  bool renorm;
};
constexpr Arm kArms[] = {
    {"batchnorm, minibatches of any class", false, false},
    {"batchnorm, biased minibatches", true, false},
    {"Batch Renorm, the same biased minibatches", true, true},
};

struct Outcome {
  double accuracy;
  double milliseconds_a_step;
};

at::Generator generator_for(uint64_t seed, uint64_t purpose) {
  return at::detail::createCPUGenerator(seed * 16 + purpose);
}

// The one difference between the nets: batchnorm and ReLU, or Batch Renorm with its ReLU inside.
void add_normalization(torch::nn::Sequential& net, int64_t channels, bool renorm, int64_t steps) {
  if (renorm) {
    net->push_back(BatchRenorm2d(BatchRenormOptions(channels)
                                     .momentum(kMomentumOfAverages)
                                     .activation(Activation::kRelu)
                                     .clip(ClipSchedule::paper().scaled_to(steps * kMinibatchesAStep))));
    return;
  }
  net->push_back(
      torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(channels).momentum(kMomentumOfAverages)));
  net->push_back(torch::nn::ReLU());
}

torch::nn::Sequential make_net(bool renorm, int64_t steps) {
  torch::nn::Sequential net;
  int64_t channels = 1;
  for (const int64_t wider : {kWidth, 2 * kWidth, 2 * kWidth}) {
    net->push_back(torch::nn::Conv2d(
        torch::nn::Conv2dOptions(channels, wider, 3).stride(channels == 1 ? 1 : 2).padding(1).bias(false)));
    add_normalization(net, wider, renorm, steps);
    channels = wider;
  }
  net->push_back(torch::nn::AdaptiveAvgPool2d(torch::nn::AdaptiveAvgPool2dOptions(kPooledSide)));
  net->push_back(torch::nn::Flatten());
  net->push_back(torch::nn::Linear(channels * kPooledSide * kPooledSide, StrokeImages::kClasses));
  return net;
}

double test_accuracy(torch::nn::Sequential& net, const StrokeImages& images, at::Generator generator) {
  const torch::NoGradGuard no_grad;
  net->eval();
  int64_t right = 0;
  for (int64_t seen = 0; seen < kTestImages; seen += kTestBatch) {
    const torch::Tensor labels = mixed_labels(kTestBatch, generator);
    const torch::Tensor guess = net->forward(images.draw(labels, generator)).argmax(1);
    right += guess.eq(labels).sum().item<int64_t>();
  }
  net->train();
  return static_cast<double>(right) / kTestImages;
}

// One step: the gradient is the mean over the minibatches, each normalised by itself, as on that many
// devices.
void take_step(torch::nn::Sequential& net, torch::optim::SGD& optimizer,
               const std::vector<std::pair<torch::Tensor, torch::Tensor>>& minibatches, double rate) {
  for (auto& group : optimizer.param_groups()) {
    static_cast<torch::optim::SGDOptions&>(group.options()).lr(rate);
  }
  optimizer.zero_grad();
  for (const auto& [images, labels] : minibatches) {
    const torch::Tensor loss = torch::nn::functional::cross_entropy(net->forward(images), labels);
    (loss / static_cast<double>(minibatches.size())).backward();
  }
  optimizer.step();
}

Outcome train(const Arm& arm, const DemoOptions& flags, Progress& progress) {
  using Clock = std::chrono::steady_clock;
  torch::manual_seed(flags.seed);
  const StrokeImages images(flags.seed);
  at::Generator labels_of = generator_for(flags.seed, 1), pixels_of = generator_for(flags.seed, 2);
  torch::nn::Sequential net = make_net(arm.renorm, flags.steps);
  torch::optim::SGD optimizer(net->parameters(),
                              torch::optim::SGDOptions(kLearningRate).momentum(kMomentumOfDescent));
  double seconds = 0.0;
  for (int64_t step = 0; step < flags.steps; ++step) {
    std::vector<std::pair<torch::Tensor, torch::Tensor>> minibatches;
    for (int64_t i = 0; i < kMinibatchesAStep; ++i) {
      const torch::Tensor labels = arm.biased ? biased_labels(kMinibatch, kClassesOfBiased, labels_of)
                                              : mixed_labels(kMinibatch, labels_of);
      minibatches.emplace_back(images.draw(labels, pixels_of), labels);
    }
    const double left = 1.0 - static_cast<double>(step) / static_cast<double>(flags.steps);
    const auto start = Clock::now();
    take_step(net, optimizer, minibatches, kLearningRate * left);
    seconds += std::chrono::duration<double>(Clock::now() - start).count();
    if (step % 10 == 0) progress.show(fmt::format("{}: step {} of {}", arm.name, step, flags.steps));
  }
  return {test_accuracy(net, images, generator_for(flags.seed, 3)),
          seconds * 1e3 / static_cast<double>(flags.steps)};
}

// Two standard errors of the difference of two test accuracies.
double chance(double one, double other) {
  return 2.0 * std::sqrt((one * (1.0 - one) + other * (1.0 - other)) / kTestImages);
}

std::string what_was_seen(const Outcome& mixed, const Outcome& biased, const Outcome& renorm) {
  const double lost = mixed.accuracy - biased.accuracy, gained = renorm.accuracy - biased.accuracy;
  const std::string points = fmt::format("{:.1f} points", 100.0 * lost);
  if (lost <= chance(mixed.accuracy, biased.accuracy)) {
    return "Biased minibatches cost batchnorm nothing that this test set can show, so there was nothing to "
           "win back.";
  }
  if (gained <= chance(renorm.accuracy, biased.accuracy)) {
    return fmt::format(
        "Biased minibatches cost batchnorm {}; Batch Renorm did not win them back in this run.", points);
  }
  if (gained >= lost) {
    return fmt::format("Biased minibatches cost batchnorm {}; Batch Renorm won back all of them.", points);
  }
  return fmt::format("Biased minibatches cost batchnorm {}; Batch Renorm won back {:.1f} of them.", points,
                     100.0 * gained);
}

std::string settings_text() {
  return fmt::format(
      "{} classes of drawn strokes, {}x{} pixels, noise {}. Three convolutions of {}, {} and {} channels,\n"
      "each normalised (momentum of the averages {}), then mean pooling to {}x{} and a linear layer. A step\n"
      "takes {} minibatches of {} images, each normalised by itself; the images of a biased minibatch are "
      "of\n"
      "{} class{}. SGD, momentum {}, learning rate {} falling to 0. Limits of r and d: the paper's "
      "schedule,\n"
      "scaled to the run. Accuracy is that of inference on {} new images of all classes.",
      StrokeImages::kClasses, StrokeImages::kSide, StrokeImages::kSide, StrokeImages::kNoise, kWidth,
      2 * kWidth, 2 * kWidth, kMomentumOfAverages, kPooledSide, kPooledSide, kMinibatchesAStep, kMinibatch,
      kClassesOfBiased, kClassesOfBiased == 1 ? "" : "es", kMomentumOfDescent, kLearningRate, kTestImages);
}

}  // namespace

void run_demo(const DemoOptions& flags) {
  if (flags.steps < 1 || flags.steps > kMostSteps) {
    throw UsageError(fmt::format("--steps must be from 1 to {}, got {}", kMostSteps, flags.steps));
  }
  // On tensors this small, more threads mostly wait for each other.
  at::set_num_threads(1);
  fmt::print("{}\n{} steps, seed {}, one thread.\n\n", settings_text(), flags.steps, flags.seed);
  std::fflush(stdout);
  Progress progress;
  std::vector<Outcome> outcomes;
  for (const Arm& arm : kArms) outcomes.push_back(train(arm, flags, progress));
  progress.clear();
  fmt::print("{:<44}{:>14}{:>12}\n", "", "test accuracy", "ms a step");
  for (size_t i = 0; i < outcomes.size(); ++i) {
    fmt::print("{:<44}{:>12.1f} %{:>12.1f}\n", kArms[i].name, 100.0 * outcomes[i].accuracy,
               outcomes[i].milliseconds_a_step);
  }
  fmt::print("\n{}\n", what_was_seen(outcomes[0], outcomes[1], outcomes[2]));
}

}  // namespace renorm::cli
