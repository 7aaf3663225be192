#include "train/clip_spec.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/errors.h"

namespace renorm::train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string refusal_of(const std::string& text) {
  try {
    parse_clip(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

void expect_point(const ClipPoint& point, double value, bool fraction) {
  EXPECT_DOUBLE_EQ(point.value, value);
  EXPECT_EQ(point.fraction, fraction);
}

TEST(ClipSpecTest, ReadsThePapersSchedule) {
  EXPECT_EQ(parse_clip("paper").kind, ClipSpec::Kind::kPaper);
  EXPECT_EQ(parse_clip("paper").paper_steps, 0);
  EXPECT_EQ(parse_clip("paper@130000").kind, ClipSpec::Kind::kPaper);
  EXPECT_EQ(parse_clip("paper@130000").paper_steps, 130'000);
}

TEST(ClipSpecTest, ReadsConstants) {
  const ClipSpec spec = parse_clip("2.5,0.25");
  EXPECT_EQ(spec.kind, ClipSpec::Kind::kConstant);
  EXPECT_EQ(spec.r_max, 2.5);
  EXPECT_EQ(spec.d_max, 0.25);
  EXPECT_EQ(parse_clip("inf,inf").r_max, kInfinity);
  EXPECT_EQ(parse_clip("1,0").r_max, 1.0);
}

TEST(ClipSpecTest, ReadsRamps) {
  const ClipSpec steps = parse_clip("hold:5000,r:3@40000,d:5@25000");
  EXPECT_EQ(steps.kind, ClipSpec::Kind::kRamp);
  EXPECT_EQ(steps.r_max, 3.0);
  EXPECT_EQ(steps.d_max, 5.0);
  expect_point(steps.hold, 5'000, false);
  expect_point(steps.r_at, 40'000, false);
  expect_point(steps.d_at, 25'000, false);
  const ClipSpec parts = parse_clip("d:inf@19.5%,r:2@31%");
  EXPECT_EQ(parts.d_max, kInfinity);
  expect_point(parts.hold, 0, false);
  expect_point(parts.r_at, 0.31, true);
  expect_point(parts.d_at, 0.195, true);
}

TEST(ClipSpecTest, SaysWhatWasExpectedAndWhereReadingStopped) {
  EXPECT_EQ(refusal_of("papers"),
            "expected the end, or @ and a number of steps, at character 6 of 'papers', got 's'");
  EXPECT_EQ(refusal_of("paper@0"),
            "expected a number of steps such as 130000 at character 7 of 'paper@0', got '0'");
  EXPECT_EQ(refusal_of("3"),
            "expected paper, paper@STEPS, R,D or hold:H,r:R@S,d:D@S at character 1 of '3', got '3'");
  EXPECT_EQ(refusal_of("0.5,1"),
            "expected r_max, a number of at least 1 or inf, at character 1 of '0.5,1', got '0.5'");
  EXPECT_EQ(refusal_of("3,-1"),
            "expected d_max, a number of at least 0 or inf, at character 3 of '3,-1', got '-1'");
  EXPECT_EQ(
      refusal_of("hold:5,r:3@x,d:5@9"),
      "expected a step, or a part of the run such as 31%, at character 12 of 'hold:5,r:3@x,d:5@9', got 'x'");
  EXPECT_EQ(refusal_of("hold:5,r:3,d:5@9"),
            "expected a limit, @ and a step, such as 3@40000 or 3@31%, at character 10 of "
            "'hold:5,r:3,d:5@9', got '3'");
  EXPECT_EQ(refusal_of("hold:5,x:3,d:5@9"),
            "expected hold:H, r:R@S or d:D@S at character 8 of 'hold:5,x:3,d:5@9', got 'x:3'");
  EXPECT_EQ(refusal_of("hold:5,r:3@9"), "expected d:LIMIT@STEP in 'hold:5,r:3@9', but it ends without one");
  EXPECT_EQ(refusal_of("r:3@9,d:5@9,r:3@9"),
            "expected 'r' only once, but it comes again at character 13 of 'r:3@9,d:5@9,r:3@9', got 'r:3@9'");
}

TEST(ClipSpecTest, RefusesEverythingElse) {
  for (const char* text : {"",
                           ",",
                           "3,5,7",
                           "nan,1",
                           "1,nan",
                           "3 ,5",
                           " paper",
                           "paper@",
                           "paper@-1",
                           "paper@1e5",
                           "hold",
                           "hold:",
                           "r",
                           ":",
                           "r:3@101%,d:5@9",
                           "r:3@-1,d:5@9",
                           "r:@1,d:5@9",
                           "r:3@,d:5@9",
                           "r:3@%,d:5@9",
                           "r:3@1.5,d:5@9",
                           "r:3@5@5,d:5@9",
                           "hold:1,hold:1",
                           "r:3@9,d:5@9,"}) {
    EXPECT_NE(refusal_of(text), "") << text;
  }
}

TEST(ClipSpecTest, TurnsPartsOfTheRunIntoSteps) {
  const ClipSteps at = clip_steps(parse_clip("hold:5,r:3@50%,d:5@33.3%"), 1'000);
  EXPECT_EQ(at.hold, 5);
  EXPECT_EQ(at.r_at, 500);
  EXPECT_EQ(at.d_at, 333);
}

TEST(ClipSpecTest, RefusesALimitReachedBeforeTheHoldEnds) {
  const ClipSpec spec = parse_clip("hold:10%,r:3@100,d:5@20%");
  EXPECT_EQ(clip_steps(spec, 1'000).hold, 100);
  try {
    clip_steps(spec, 1'010);
    FAIL() << "took a ramp that ends before it begins";
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "--clip: r_max must be reached at or after the hold, which ends at step 101 of 1010, got step 100");
  }
}

}  // namespace
}  // namespace renorm::train
