#include "report/thin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "report/report.h"

namespace renorm::report {
namespace {

using record::Arm;
using record::Results;
using record::TrainingPoint;

constexpr int64_t kLogged = 200'000;
constexpr size_t kMaxPageBytes = 5'000'000;

// A run that logged every step, with one spike of each quantity far from the others.
Arm long_run() {
  RandomStream stream(1, Purpose::kBench);
  Arm arm;
  arm.name = "long";
  arm.figure = "runs";
  arm.renorm = true;
  arm.steps = kLogged;
  arm.runs = {{1, ".", kLogged, 1.0, true}};
  for (int64_t step = 1; step <= kLogged; ++step) {
    TrainingPoint point;
    point.step = step;
    point.loss = 1.0 + stream.uniform();
    point.r_clipped = 0.5 * stream.uniform();
    point.d_clipped = 0.5 * stream.uniform();
    arm.training.push_back(point);
    arm.curve.push_back({step, 50.0 + stream.uniform(), {50.0}});
  }
  arm.training[77'777].loss = 1000.0;
  arm.training[77'778].loss = -1.0;
  arm.training[123'456].r_clipped = 0.9;
  arm.training[30'001].d_clipped = 0.8;
  arm.curve[50'000].mean = 99.0;
  return arm;
}

Results results_of(std::vector<Arm> arms) {
  Results results;
  results.name = "runs";
  results.figures = {{"runs", "Test accuracy", "", false}};
  results.seeds = {1};
  results.arms = std::move(arms);
  return results;
}

bool has_step(const std::vector<TrainingPoint>& points, int64_t step) {
  return std::any_of(points.begin(), points.end(), [&](const auto& point) { return point.step == step; });
}

TEST(Thin, KeepsExtremesAndEnds) {
  const Results all = results_of({long_run()});
  const Arm arm = thinned(all, kMaxPoints).arms.front();
  EXPECT_LE(arm.training.size(), kMaxPoints);
  EXPECT_GT(arm.training.size(), kMaxPoints / 2);
  EXPECT_LE(arm.curve.size(), kMaxPoints);
  for (const int64_t step :
       {int64_t{1}, int64_t{77'778}, int64_t{77'779}, int64_t{123'457}, int64_t{30'002}, kLogged}) {
    EXPECT_TRUE(has_step(arm.training, step)) << step;
  }
  EXPECT_TRUE(std::any_of(arm.curve.begin(), arm.curve.end(), [](const auto& p) { return p.mean == 99.0; }));
  EXPECT_TRUE(std::is_sorted(arm.training.begin(), arm.training.end(),
                             [](const auto& a, const auto& b) { return a.step < b.step; }));
}

TEST(Thin, ChangesNothingBelowTheMaximum) {
  Results few = results_of({long_run()});
  few.arms.front().training.resize(kMaxPoints);
  few.arms.front().curve.resize(kMaxPoints);
  EXPECT_EQ(record::to_json(thinned(few, kMaxPoints)), record::to_json(few));
}

TEST(Thin, TakesQuantitiesThatAreNoNumbers) {
  Results results = results_of({long_run()});
  for (TrainingPoint& point : results.arms.front().training) {
    point.r_clipped = std::numeric_limits<double>::quiet_NaN();
    point.d_clipped = std::numeric_limits<double>::quiet_NaN();
  }
  const Arm arm = thinned(results, kMaxPoints).arms.front();
  EXPECT_TRUE(has_step(arm.training, 77'778));
  EXPECT_LE(arm.training.size(), kMaxPoints);
}

TEST(Thin, APageOfLongRunsStaysSmall) {
  ReportExtras extras = {std::string(600'000, 'x'), "a contact sheet"};
  const std::string image(5'000, 'x');
  extras.why = WhyPanel{"strokes:decoy=1", image, image, image, image};
  EXPECT_LT(html(results_of({long_run()}), extras).size(), kMaxPageBytes);
  Arm shorter = long_run();
  shorter.training.resize(5000);
  shorter.curve.resize(5000);
  EXPECT_LT(html(results_of(std::vector<Arm>(30, shorter)), extras).size(), kMaxPageBytes);
}

}  // namespace
}  // namespace renorm::report
