#include "experiments/claims.h"

#include <gtest/gtest.h>

#include "experiments/kinds.h"

namespace renorm::experiments {
namespace {

// An experiment in which every arm is finished with these accuracies.
class Claims : public ::testing::Test {
 protected:
  Claims() {
    ExperimentOptions options;
    options.seeds = 3;
    results_ = blank_results(make_experiment(paper(), options));
    results_.test_images = 4000;
    for (record::Arm& arm : results_.arms) {
      for (record::ArmRun& run : arm.runs) run.finished = true;
      arm.test_accuracy = around(80.0);
      if (arm.train_accuracy) arm.train_accuracy = around(85.0);
      if (arm.batch_statistics_accuracy) arm.batch_statistics_accuracy = around(80.0);
      for (const int64_t step : {100, 200, 300}) {
        const double accuracy = step == 300 ? 80.0 : 10.0;
        arm.curve.push_back({step, accuracy, {accuracy, accuracy, accuracy}});
        arm.training.push_back(
            {step, 1.0, 50.0, 0.1, step >= 200 ? 3.0 : 2.0, step >= 200 ? 5.0 : 1.0, 0.0, 0.0});
      }
    }
  }

  // Three seeds with a spread of 0.5.
  static record::Measure around(double mean) { return record::measure_of({mean - 0.5, mean, mean + 0.5}); }
  record::Arm& arm(const std::string& name) {
    for (record::Arm& arm : results_.arms) {
      if (arm.name == name) return arm;
    }
    throw std::out_of_range(name);
  }
  // Three seeds in another order, so that the differences to the other arms have a spread of 0.5 too.
  void set(const std::string& name, double mean) {
    arm(name).test_accuracy = record::measure_of({mean, mean - 0.5, mean + 0.5});
  }

  std::string verdict(const std::string& text) {
    judge(paper().claims, &results_);
    for (const record::Claim& claim : results_.claims) {
      if (claim.text.rfind(text, 0) == 0) return claim.verdict;
    }
    return "no such claim";
  }

  record::Results results_;
};

// Differences with a spread of 0.5 over three seeds have 2 degrees of freedom: t = 4.303, and their mean is
// known to 4.303 x sqrt(0.25 / 3) = 1.242. Welch's interval has 4 degrees: 2.776 x sqrt(2 x 0.25 / 3)
// = 1.133.
TEST_F(Claims, IntervalIsPairedBySeed) {
  const char* claim = "In groups of 4, Batch Renorm beats batchnorm";
  set("micro4-renorm", 81.23);
  EXPECT_EQ(verdict(claim), record::kNotResolved);
  set("micro4-renorm", 81.25);
  EXPECT_EQ(verdict(claim), record::kHolds);
  set("micro4-renorm", 78.75);
  EXPECT_EQ(verdict(claim), record::kDoesNotHold);
  const record::Claim& judged = results_.claims[1];
  EXPECT_NE(judged.evidence.find("difference -1.2 +- 1.2"), std::string::npos) << judged.evidence;
  ASSERT_TRUE(judged.difference);
  EXPECT_NEAR(judged.difference->mean, -1.25, 1e-9);
  EXPECT_NEAR(judged.difference->half_width, 1.242, 1e-3);
  EXPECT_NEAR(judged.difference->welch.value(), 1.133, 1e-3);
}

// Of arms with seeds 1, 2, 3 and 2, 3, 4 the seeds 2 and 3 are compared, however far apart the others are.
TEST_F(Claims, OnlySeedsOfBothArmsAreCompared) {
  record::Arm& renorm = arm("micro4-renorm");
  renorm.test_accuracy = record::measure_of({80.5, 81.0, 10.0});
  for (size_t i = 0; i < 3; ++i) renorm.runs[i].seed = i + 2;
  EXPECT_EQ(verdict("In groups of 4, Batch Renorm beats batchnorm"), record::kHolds);
  EXPECT_NEAR(results_.claims[1].difference->mean, 0.5, 1e-9);
}

TEST_F(Claims, AgreementNeedsTheWholeIntervalWithinTheMargin) {
  const char* claim = "Batchnorm and Batch Renorm agree";
  EXPECT_EQ(verdict(claim), record::kHolds);
  set("iid-renorm", 81.5);
  EXPECT_EQ(verdict(claim), record::kNotResolved);
  set("iid-renorm", 76.5);
  EXPECT_EQ(verdict(claim), record::kDoesNotHold);
}

TEST_F(Claims, ALossIsAtLeastFivePoints) {
  const char* claim = "On pairs batchnorm loses";
  set("pairs-batchnorm", 77.0);
  EXPECT_EQ(verdict(claim), record::kDoesNotHold);
  set("pairs-batchnorm", 75.0);
  EXPECT_EQ(verdict(claim), record::kNotResolved);
  set("pairs-batchnorm", 73.5);
  EXPECT_EQ(verdict(claim), record::kHolds);
}

TEST_F(Claims, EveryMeasureOfABiasedArmIsUsed) {
  set("blocks-batchnorm", 60.0);
  arm("blocks-batchnorm").train_accuracy = around(70.0);
  arm("blocks-batchnorm").batch_statistics_accuracy = around(75.0);
  EXPECT_EQ(verdict("On blocks batchnorm loses"), record::kHolds);
  EXPECT_EQ(verdict("On blocks its training accuracy"), record::kHolds);
  EXPECT_EQ(verdict("On blocks evaluation with batch statistics wins back"), record::kHolds);
  EXPECT_EQ(verdict("On blocks dealing the images wins back"), record::kHolds);
  EXPECT_EQ(verdict("On blocks Batch Renorm wins back"), record::kHolds);
  EXPECT_EQ(verdict("On blocks Batch Renorm recovers the i.i.d. level"), record::kHolds);
  arm("blocks-batchnorm").train_accuracy = around(90.0);
  EXPECT_EQ(verdict("On blocks its training accuracy"), record::kDoesNotHold);
  set("blocks-renorm", 70.0);
  EXPECT_EQ(verdict("On blocks Batch Renorm recovers the i.i.d. level"), record::kDoesNotHold);
}

// Of a loss of 20 points, 8 is less than half and 12 is more. At 10 it is open.
TEST_F(Claims, HalfOfTheLossIsMeasuredAgainstIid) {
  const char* claim = "On blocks Batch Renorm wins back at least half of the loss";
  set("blocks-batchnorm", 60.0);
  for (const auto& [accuracy, expected] :
       {std::pair(68.0, record::kDoesNotHold), std::pair(70.2, record::kNotResolved),
        std::pair(72.0, record::kHolds)}) {
    arm("blocks-renorm").test_accuracy = around(accuracy);
    EXPECT_EQ(verdict(claim), expected) << accuracy;
  }
}

TEST_F(Claims, AFallIsFromTheBestEvaluation) {
  const char* claim = "On pairs its accuracy peaks and falls";
  EXPECT_EQ(verdict(claim), record::kDoesNotHold);
  arm("pairs-batchnorm").curve[1].values = {84.0, 84.5, 85.0};
  EXPECT_EQ(verdict(claim), record::kHolds);
  arm("pairs-batchnorm").curve[1].values = {81.5, 82.0, 89.0};
  EXPECT_EQ(verdict(claim), record::kNotResolved);
}

TEST_F(Claims, FasterMeansAnEarlierEvaluationInEverySeed) {
  const char* claim = "In groups of 4, Batch Renorm is faster";
  for (const char* name : {"micro4-batchnorm", "micro4-renorm"})
    arm(name).test_accuracy = record::measure_of({80, 80, 80});
  EXPECT_EQ(verdict(claim), record::kDoesNotHold);
  arm("micro4-renorm").curve[1].values = {80.0, 10.0, 80.0};
  EXPECT_EQ(verdict(claim), record::kNotResolved);
  arm("micro4-renorm").curve[1].values = {80.0, 81.0, 80.0};
  EXPECT_EQ(verdict(claim), record::kHolds);
}

TEST_F(Claims, ClippingCountsOnceTheLimitsAreFinal) {
  const char* claim = "Few r and no d are clipped";
  arm("iid-renorm").training[0].r_clipped = 0.9;
  EXPECT_EQ(verdict(claim), record::kHolds);
  arm("iid-renorm").training[2].r_clipped = 0.08;  // mean of two records 0.04
  EXPECT_EQ(verdict(claim), record::kHolds);
  arm("pairs-renorm").training[2].d_clipped = 0.01;
  EXPECT_EQ(verdict(claim), record::kDoesNotHold);
}

TEST_F(Claims, AnUnfinishedArmResolvesNothing) {
  set("blocks-batchnorm", 10.0);
  arm("blocks-batchnorm").runs[1].finished = false;
  EXPECT_EQ(verdict("On blocks batchnorm loses"), record::kNotResolved);
  EXPECT_EQ(verdict("Batchnorm and Batch Renorm agree"), record::kHolds);
}

TEST_F(Claims, AnArmThatIsNotPartOfTheExperimentHasNoClaims) {
  results_.arms.erase(results_.arms.begin());  // iid-batchnorm
  EXPECT_EQ(verdict("On blocks batchnorm loses"), "no such claim");
  EXPECT_EQ(verdict("On blocks Batch Renorm wins back"), "no such claim");
  EXPECT_EQ(verdict("On pairs batchnorm loses"), record::kDoesNotHold);
}

TEST_F(Claims, WithoutALossNothingIsRecovered) {
  set("pairs-renorm", 90.0);
  const char* claim = "On pairs Batch Renorm wins back";
  EXPECT_EQ(verdict(claim), record::kNotResolved);
  set("pairs-batchnorm", 70.0);
  EXPECT_EQ(verdict(claim), record::kHolds);
}

TEST_F(Claims, FasterComparesSeedsThatBothHave) {
  arm("micro4-renorm").test_accuracy = record::measure_of({80.0});
  arm("micro4-batchnorm").test_accuracy = record::measure_of({80.0, 80.0, 80.0});
  arm("micro4-renorm").curve[1].values = {80.0};
  arm("micro4-renorm").curve[2].values = {80.0};
  EXPECT_EQ(verdict("In groups of 4, Batch Renorm is faster"), record::kHolds);
}

TEST_F(Claims, WithOneSeedTheTestSetDecides) {
  for (record::Arm& arm : results_.arms) {
    arm.test_accuracy = record::measure_of({80.0});
    if (arm.train_accuracy) arm.train_accuracy = record::measure_of({80.0});
    if (arm.batch_statistics_accuracy) arm.batch_statistics_accuracy = record::measure_of({80.0});
  }
  judge(paper().claims, &results_);
  // 1.96 x sqrt(2 x 80 x 20 / 4000) = 1.753
  EXPECT_NE(results_.claims[0].evidence.find("+0.0 +- 1.8"), std::string::npos)
      << results_.claims[0].evidence;
  EXPECT_NE(results_.test.find("one seed"), std::string::npos);
}

}  // namespace
}  // namespace renorm::experiments
