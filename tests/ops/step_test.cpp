// The operator that reads the step, and the one that moves averages.
#include <limits>

#include "cases.h"

namespace renorm::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Schedule {
  ops::ClipRamp clip;
  std::vector<int64_t> steps;
};

std::vector<Schedule> schedules() {
  return {{{-1, 1.2, 0, 0.1, 0}, {0, 7}},
          {{3, 3.0, 13, 5.0, 8}, {0, 3, 4, 7, 8, 12, 13, 1000}},
          {{0, kInfinity, 5, kInfinity, 0}, {0, 1, 4, 5, 6}},
          {{2, 2.0, 2, 0.5, 2}, {2, 3}}};
}

at::Tensor step_tensor(int64_t step) { return at::full({}, step, at::kLong); }

class Step : public Seeded {};

TEST_F(Step, GivesTheLimitsOfTheRamp) {
  Random random(12);
  for (const Schedule& schedule : schedules()) {
    for (const int64_t step : schedule.steps) {
      // Half has no kernel, so the composite computes the ramp.
      for (const auto type : {at::kFloat, at::kDouble, at::kHalf}) {
        Case c = draw_case(random);
        c.type = type;
        c.has_averages = true;
        c.has_residual = false;
        SCOPED_TRACE(describe(c) + " step " + std::to_string(step));
        const Tensors t = make_tensors(c);
        ops::BatchRenormArguments arguments = c.arguments;
        const ClipLimits limits = schedule.clip.at(step);
        arguments.r_max = limits.r_max;
        arguments.d_max = limits.d_max;
        const auto expected = train(t, arguments);
        const auto actual = ops::batch_renorm_step(t.input, t.weight, t.bias, t.running_mean, t.running_std,
                                                   step_tensor(step), schedule.clip, c.arguments);
        EXPECT_LE(error_of(actual.output, expected.output), tolerance(type));
        EXPECT_LE(error_of(actual.r, expected.r), tolerance(statistics_of(type)));
        EXPECT_LE(error_of(actual.d, expected.d), tolerance(statistics_of(type)));
      }
    }
  }
}

TEST_F(Step, GradientIsThatOfTheLimits) {
  Case c;
  c.type = at::kDouble;
  c.sizes = {6, 3, 5};
  c.arguments = {1e-3, 1.4, 0.3, 3, Grouping::kStrided, Activation::kRelu};
  const Tensors t = make_tensors(c);
  t.input.requires_grad_();
  t.weight.requires_grad_();
  const auto expected =
      torch::autograd::grad({train(t, c.arguments).output}, {t.input, t.weight}, {t.grad_output});
  const auto output = ops::batch_renorm_step(t.input, t.weight, t.bias, t.running_mean, t.running_std,
                                             step_tensor(20), {4, 1.4, 10, 0.3, 20}, c.arguments)
                          .output;
  const auto actual = torch::autograd::grad({output}, {t.input, t.weight}, {t.grad_output});
  EXPECT_TRUE(at::equal(actual[0], expected[0]));
  EXPECT_TRUE(at::equal(actual[1], expected[1]));
}

TEST_F(Step, NamesBadArguments) {
  Case c;
  c.sizes = {4, 3, 5};
  const Tensors t = make_tensors(c);
  const auto message = [&](const at::Tensor& step, const ops::ClipRamp& clip) {
    return message_of([&] {
      ops::batch_renorm_step(t.input, t.weight, t.bias, t.running_mean, t.running_std, step, clip, {});
    });
  };
  const ops::ClipRamp good{2, 3.0, 4, 5.0, 6};
  EXPECT_EQ(message(step_tensor(1), good), "");
  EXPECT_EQ(message(at::zeros({}, at::kInt), good),
            "renorm::batch_renorm_step: step must be one int64 without dimensions, got Int of sizes []");
  EXPECT_EQ(message(at::zeros({1}, at::kLong), good),
            "renorm::batch_renorm_step: step must be one int64 without dimensions, got Long of sizes [1]");
  EXPECT_EQ(message(step_tensor(1), {5, 3.0, 4, 5.0, 6}),
            "renorm::batch_renorm_step: r_step must be >= hold, 5, got 4");
  EXPECT_EQ(message(step_tensor(1), {5, 3.0, 7, 5.0, 4}),
            "renorm::batch_renorm_step: d_step must be >= hold, 5, got 4");
  EXPECT_EQ(message(step_tensor(1), {5, 0.5, 7, 5.0, 7}),
            "renorm::batch_renorm_step: r_max must be >= 1, got 0.5");
}

// Averages of `channels` values, and what moves them.
struct Averages {
  explicit Averages(int64_t channels, at::ScalarType type, int64_t steps = 0)
      : mean(at::randn({channels}, type)), std(at::rand({channels}, type) + 0.5), step(step_tensor(steps)) {}

  void move(const at::Tensor& batch_mean, const at::Tensor& batch_std, Optional<double> momentum) {
    ops::move_averages_(mean, std, step, batch_mean, batch_std, momentum);
  }

  at::Tensor mean;
  at::Tensor std;
  at::Tensor step;
};

class MoveAverages : public Seeded {};

TEST_F(MoveAverages, ByTheMeanOverTheGroups) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    for (const Optional<double> momentum :
         {Optional<double>(0.0), Optional<double>(0.25), Optional<double>(1.0), Optional<double>()}) {
      Averages a(37, type, 3);
      const at::Tensor batch_mean = at::randn({5, 37}, type);
      const at::Tensor batch_std = at::rand({5, 37}, type);
      const double weight = momentum.value_or(0.25);  // 1 / (3 + 1)
      const auto moved = [&](const at::Tensor& from, const at::Tensor& by) {
        const at::Tensor wide = from.to(at::kDouble);
        return wide + weight * (by.to(at::kDouble).mean(0) - wide);
      };
      const at::Tensor mean = moved(a.mean, batch_mean);
      const at::Tensor std = moved(a.std, batch_std);
      const auto version = a.mean._version();
      a.move(batch_mean, batch_std, momentum);
      EXPECT_LE(error_of(a.mean, mean), tolerance(type));
      EXPECT_LE(error_of(a.std, std), tolerance(type));
      EXPECT_EQ(a.step.item<int64_t>(), 4);
      EXPECT_GT(a.mean._version(), version);
    }
  }
}

TEST_F(MoveAverages, InPlaceWhateverTheStrides) {
  const at::Tensor storage = at::zeros({6, 2});
  Averages a(6, at::kFloat);
  a.mean = storage.select(1, 1);
  a.move(at::ones({2, 6}), at::ones({2, 6}), 0.5);
  EXPECT_TRUE(at::equal(storage.select(1, 1), at::full({6}, 0.5)));
  EXPECT_TRUE(at::equal(storage.select(1, 0), at::zeros({6})));
}

TEST_F(MoveAverages, NeverByValuesThatAreNotFinite) {
  for (const double bad : {kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    for (const bool in_mean : {true, false}) {
      Averages a(40, at::kFloat, 17);
      const at::Tensor mean = a.mean.clone();
      const at::Tensor std = a.std.clone();
      at::Tensor batch_mean = at::zeros({2, 40});
      at::Tensor batch_std = at::ones({2, 40});
      (in_mean ? batch_mean : batch_std)[1][38] = bad;
      EXPECT_THROW(a.move(batch_mean, batch_std, 0.1), NonFiniteStatistics);
      EXPECT_EQ(
          message_of([&] { a.move(batch_mean, batch_std, 0.1); }),
          "renorm::move_averages_: the batch statistics of channel 38 are not finite (step 17); look for "
          "overflow or NaN in the input");
      EXPECT_TRUE(at::equal(a.mean, mean));
      EXPECT_TRUE(at::equal(a.std, std));
      EXPECT_EQ(a.step.item<int64_t>(), 17);
    }
  }
}

TEST_F(MoveAverages, NotByAnEmptyBatch) {
  Averages a(4, at::kFloat, 2);
  const at::Tensor mean = a.mean.clone();
  a.move(at::empty({0, 4}), at::empty({0, 4}), 0.5);
  EXPECT_TRUE(at::equal(a.mean, mean));
  EXPECT_EQ(a.step.item<int64_t>(), 2);
}

TEST_F(MoveAverages, NamesBadArguments) {
  Averages a(4, at::kFloat);
  const at::Tensor good = at::ones({2, 4});
  const auto message = [&](const at::Tensor& mean, const at::Tensor& std, double momentum) {
    return message_of([&] { a.move(mean, std, momentum); });
  };
  EXPECT_EQ(
      message(at::ones({2, 5}), at::ones({2, 5}), 0.1),
      "renorm::move_averages_: batch_mean and batch_std must be [groups, 4], got sizes [2, 5] and [2, 5]");
  EXPECT_EQ(
      message(good, at::ones({3, 4}), 0.1),
      "renorm::move_averages_: batch_mean and batch_std must be [groups, 4], got sizes [2, 4] and [3, 4]");
  EXPECT_EQ(
      message(good.to(at::kDouble), good, 0.1),
      "renorm::move_averages_: averages and statistics must have one dtype and device, got Float on cpu and "
      "Double on cpu");
  EXPECT_EQ(message(good, good, 1.5), "renorm::move_averages_: momentum must be in [0, 1] or none, got 1.5");
}

}  // namespace
}  // namespace renorm::test
