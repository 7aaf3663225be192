#include "train/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace renorm::train {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kTolerance = 1e-15;

LearningRate rate(LrSchedule schedule, int64_t warmup, int64_t steps) {
  LearningRate rate;
  rate.schedule = schedule;
  rate.base = 0.003;
  rate.final_fraction = 0.07;
  rate.warmup = warmup;
  rate.steps = steps;
  return rate;
}

TEST(LearningRateTest, ExponentialFallsByTheSameFactorEveryStep) {
  const auto lr = rate(LrSchedule::kExponential, 0, 1'300);
  for (int64_t step = 0; step < 1'300; ++step) {
    EXPECT_NEAR(lr.at(step), 0.003 * std::exp(std::log(0.07) * static_cast<double>(step) / 1299.0),
                kTolerance);
  }
}

TEST(LearningRateTest, CosineIsHalfAPeriodBetweenItsEnds) {
  const auto lr = rate(LrSchedule::kCosine, 0, 101);
  for (int64_t step = 0; step <= 100; ++step) {
    const double t = static_cast<double>(step) / 100.0;
    const double lowest = 0.003 * 0.07;
    EXPECT_NEAR(lr.at(step), lowest + (0.003 - lowest) * 0.5 * (1.0 + std::cos(kPi * t)), kTolerance);
  }
  EXPECT_NEAR(lr.at(50), 0.003 * (1.0 + 0.07) / 2.0, kTolerance);
}

TEST(LearningRateTest, ConstantStaysAtTheBase) {
  for (const int64_t step : {0, 1, 57, 99}) EXPECT_EQ(rate(LrSchedule::kConstant, 0, 100).at(step), 0.003);
}

TEST(LearningRateTest, EndsAreExact) {
  for (const LrSchedule schedule : {LrSchedule::kExponential, LrSchedule::kCosine}) {
    for (const double fraction : {0.07, 0.05, 1.0 / 3.0, 1e-9, 1.0}) {
      for (const int64_t warmup : {0, 7}) {
        auto lr = rate(schedule, warmup, 1'000);
        lr.final_fraction = fraction;
        EXPECT_EQ(lr.at(warmup), 0.003) << name_of(schedule) << " " << fraction;
        EXPECT_EQ(lr.at(999), 0.003 * fraction) << name_of(schedule) << " " << fraction;
        EXPECT_EQ(lr.at(5'000), 0.003 * fraction) << name_of(schedule) << " " << fraction;
      }
    }
  }
}

TEST(LearningRateTest, WarmUpRisesLinearlyToTheBase) {
  for (const LrSchedule schedule : {LrSchedule::kExponential, LrSchedule::kCosine, LrSchedule::kConstant}) {
    const auto lr = rate(schedule, 5, 100);
    for (int64_t step = 0; step < 5; ++step) {
      EXPECT_NEAR(lr.at(step), 0.003 * static_cast<double>(step + 1) / 5.0, kTolerance) << name_of(schedule);
    }
    EXPECT_EQ(lr.at(4), 0.003) << name_of(schedule);
    EXPECT_EQ(lr.at(5), 0.003) << name_of(schedule);
  }
}

TEST(LearningRateTest, ProgressIsMeasuredAfterTheWarmUp) {
  for (const LrSchedule schedule : {LrSchedule::kExponential, LrSchedule::kCosine, LrSchedule::kConstant}) {
    const auto with = rate(schedule, 10, 60);
    const auto without = rate(schedule, 0, 50);
    for (int64_t step = 0; step < 50; ++step)
      EXPECT_EQ(with.at(10 + step), without.at(step)) << name_of(schedule);
  }
}

TEST(LearningRateTest, ShortRunsHaveARate) {
  for (const LrSchedule schedule : {LrSchedule::kExponential, LrSchedule::kCosine, LrSchedule::kConstant}) {
    EXPECT_EQ(rate(schedule, 0, 1).at(0), 0.003) << name_of(schedule);
    EXPECT_EQ(rate(schedule, 3, 4).at(3), 0.003) << name_of(schedule);
    EXPECT_EQ(rate(schedule, 8, 4).at(3), 0.0015) << name_of(schedule);  // all of it warm-up
  }
  EXPECT_EQ(rate(LrSchedule::kExponential, 0, 2).at(1), 0.003 * 0.07);
}

}  // namespace
}  // namespace renorm::train
