#include <renorm/nn/clip_schedule.h>

#include <limits>

#include "support.h"

namespace renorm::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void expect_limits(const ClipSchedule& schedule, int64_t step, double r_max, double d_max) {
  const ClipLimits limits = schedule.at(step);
  EXPECT_DOUBLE_EQ(limits.r_max, r_max) << "step " << step;
  EXPECT_DOUBLE_EQ(limits.d_max, d_max) << "step " << step;
}

TEST(ClipScheduleTest, FollowsThePapersTable) {
  const ClipSchedule paper = ClipSchedule::paper();
  expect_limits(paper, 0, 1.0, 0.0);
  expect_limits(paper, 4'999, 1.0, 0.0);
  expect_limits(paper, 5'000, 1.0, 0.0);
  expect_limits(paper, 5'001, 1.0 + 2.0 / 35'000, 5.0 / 20'000);
  expect_limits(paper, 15'000, 1.0 + 2.0 * 10 / 35, 2.5);
  expect_limits(paper, 25'000, 1.0 + 2.0 * 20 / 35, 5.0);
  EXPECT_NEAR(paper.at(25'000).r_max, 2.142857, 5e-7);
  expect_limits(paper, 39'999, 1.0 + 2.0 * 34'999 / 35'000, 5.0);
  expect_limits(paper, 40'000, 3.0, 5.0);
  expect_limits(paper, 1'000'000'000, 3.0, 5.0);
}

TEST(ClipScheduleTest, OfThePaperFitsARunOfAnyLength) {
  const ClipSchedule scaled = ClipSchedule::paper(1'300);
  EXPECT_EQ(scaled, ClipSchedule::ramp(50, 3.0, 400, 5.0, 250));
  EXPECT_EQ(ClipSchedule::paper(130'000), ClipSchedule::paper());
  EXPECT_NE(scaled, ClipSchedule::paper());
}

TEST(ClipScheduleTest, OfThePaperStaysOrderedInARunOfOneStep) {
  const ClipSchedule scaled = ClipSchedule::paper(1);
  EXPECT_LE(scaled.hold(), scaled.d_step());
  EXPECT_LE(scaled.d_step(), scaled.r_step());
  expect_limits(scaled, 1, 3.0, 5.0);
}

TEST(ClipScheduleTest, IsTheSameAtEveryStepIfConstant) {
  for (const int64_t step : {int64_t{0}, int64_t{1}, int64_t{1'000'000'000}}) {
    expect_limits(ClipSchedule::constant(2.0, 0.5), step, 2.0, 0.5);
    expect_limits(ClipSchedule::batch_norm(), step, 1.0, 0.0);
    expect_limits(ClipSchedule::unlimited(), step, kInfinity, kInfinity);
  }
}

TEST(ClipScheduleTest, JumpsAfterTheHoldIfTheRampHasNoLength) {
  const ClipSchedule jump = ClipSchedule::ramp(3, kInfinity, 3, 4.0, 5);
  expect_limits(jump, 3, 1.0, 0.0);
  expect_limits(jump, 4, kInfinity, 2.0);
  expect_limits(jump, 5, kInfinity, 4.0);
  expect_limits(ClipSchedule::ramp(0, kInfinity, 9, 1.0, 9), 1, kInfinity, 1.0 / 9);
}

TEST(ClipScheduleTest, ReadsAsASentence) {
  EXPECT_EQ(ClipSchedule::paper().to_string(), "r_max 3 at 40000, d_max 5 at 25000, hold 5000");
  EXPECT_EQ(ClipSchedule::constant(1.5, 0.25).to_string(), "r_max 1.5, d_max 0.25");
}

TEST(ClipScheduleTest, RejectsInvalidSchedules) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_message([] { ClipSchedule::constant(0.5, 0.0); }, {"r_max", ">= 1", "0.5"});
  expect_message([&] { ClipSchedule::constant(nan, 0.0); }, {"r_max", ">= 1", "nan"});
  expect_message([] { ClipSchedule::constant(1.0, -0.25); }, {"d_max", ">= 0", "-0.25"});
  expect_message([] { ClipSchedule::ramp(-7, 3.0, 10, 5.0, 10); }, {"hold", ">= 0", "-7"});
  expect_message([] { ClipSchedule::ramp(10, 3.0, 9, 5.0, 10); }, {"r_step", "hold", "10", "9"});
  expect_message([] { ClipSchedule::ramp(10, 3.0, 10, 5.0, 8); }, {"d_step", "hold", "10", "8"});
  expect_message([] { ClipSchedule::paper(0); }, {"steps", "> 0", "0"});
}

}  // namespace
}  // namespace renorm::testing
