#include <gtest/gtest.h>

#include "base/errors.h"
#include "train/clip_spec.h"

namespace renorm::train {
namespace {

TEST(ClipScheduleOfSpec, ScalesThePaperToTheRunUnlessToldOtherwise) {
  EXPECT_EQ(to_schedule(parse_clip("paper"), 1'300), ClipSchedule::ramp(50, 3.0, 400, 5.0, 250));
  EXPECT_EQ(to_schedule(parse_clip("paper@130000"), 1'300), ClipSchedule::paper());
}

TEST(ClipScheduleOfSpec, KeepsConstants) {
  EXPECT_EQ(to_schedule(parse_clip("1,0"), 10), ClipSchedule::batch_norm());
  EXPECT_EQ(to_schedule(parse_clip("inf,inf"), 10), ClipSchedule::unlimited());
}

TEST(ClipScheduleOfSpec, PlacesRampsInTheRun) {
  EXPECT_EQ(to_schedule(parse_clip("hold:10%,r:2@500,d:inf@50%"), 1'000),
            ClipSchedule::ramp(100, 2.0, 500, std::numeric_limits<double>::infinity(), 500));
  EXPECT_THROW(to_schedule(parse_clip("hold:10%,r:2@9,d:1@50%"), 1'000), UsageError);
}

}  // namespace
}  // namespace renorm::train
