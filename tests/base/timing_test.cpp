#include "base/timing.h"

#include <gtest/gtest.h>

#include <limits>

namespace renorm::testing {
namespace {

TEST(Stopwatch, StartsAgainAfterALap) {
  Stopwatch watch;
  while (watch.seconds() < 0.002) {
  }
  EXPECT_GE(watch.lap(), 0.002);
  EXPECT_GE(watch.seconds(), 0.0);
}

TEST(Stopwatch, LeavesOutWhatIsExcluded) {
  Stopwatch watch;
  watch.exclude(1000.0);
  EXPECT_LT(watch.seconds(), 0.0);
}

TEST(Median, IsTheMiddleOne) {
  EXPECT_EQ(median({3.0}), 3.0);
  EXPECT_EQ(median({9.0, 1.0, 2.0}), 2.0);
}

TEST(Median, IsTheMeanOfTheTwoMiddleOnes) {
  EXPECT_EQ(median({1.0, 2.0}), 1.5);
  EXPECT_EQ(median({8.0, 1.0, 100.0, 2.0}), 5.0);
}

TEST(DurationText, ChoosesItsUnits) {
  EXPECT_EQ(duration_text(0.24), "0.2 s");
  EXPECT_EQ(duration_text(9.96), "10 s");
  EXPECT_EQ(duration_text(59.4), "59 s");
  EXPECT_EQ(duration_text(59.6), "1 min 00 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(2 * 3600 + 5 * 60), "2 h 05 min");
  EXPECT_EQ(duration_text(76 * 3600.0), "3 d 4 h");
}

TEST(DurationText, IsAQuestionMarkForWhatIsNoDuration) {
  EXPECT_EQ(duration_text(-1.0), "?");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::quiet_NaN()), "?");
}

}  // namespace
}  // namespace renorm::testing
