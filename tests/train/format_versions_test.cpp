// Stored runs: stored_runs/format-N has one per version N of state.json, stopped after step 10 of 20.
// format-2-scale has a weight in the norms; it ran to its end and was cut back to its checkpoint of step 10.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "record/metrics.h"
#include "support.h"
#include "train/evaluate.h"
#include "train/opened_run.h"
#include "train/run.h"

namespace renorm::train {
namespace {

using testing::TemporaryFolder;

// Another CPU or LibTorch rounds differently.
constexpr double kLossTolerance = 1e-4;

std::vector<std::string> stored_runs() {
  std::vector<std::string> folders;
  for (const std::string& name : list_folder(RENORM_STORED_RUNS))
    folders.push_back(RENORM_STORED_RUNS "/" + name);
  return folders;
}

record::Metrics metrics_of(const std::string& folder) {
  const std::string file = folder + "/metrics.jsonl";
  return record::parse_metrics(read_file(file), file);
}

// The accuracies are of so few images that another rounding does not change them.
void expect_recorded(const Evaluation& now, const record::Score& recorded) {
  EXPECT_NEAR(now.loss, recorded.loss, kLossTolerance);
  EXPECT_EQ(now.accuracy(), recorded.accuracy);
}

class StoredRuns : public ::testing::Test {
 protected:
  void SetUp() override { setenv("RENORM_CACHE", folder_.path("cache").c_str(), 1); }

  TemporaryFolder folder_;
};

TEST_F(StoredRuns, HaveThePresentFormat) {
  const nlohmann::json state = nlohmann::json::parse(to_json(RunState()));
  const std::string name = "format-" + std::to_string(state.at("format_version").get<int>());
  EXPECT_TRUE(std::filesystem::exists(RENORM_STORED_RUNS "/" + name))
      << "store a run of the new format in tests/train/stored_runs/" << name;
}

TEST_F(StoredRuns, OpenWithTheAccuracyThatTheyRecorded) {
  for (const std::string& stored : stored_runs()) {
    SCOPED_TRACE(stored);
    const OpenedRun run = open_run(stored, "last");
    EXPECT_EQ(run.state.step, 10);
    ASSERT_TRUE(run.state.last_evaluation);
    ASSERT_NE(run.average, nullptr);
    const data::Dataset dataset = open_data(run.state.config, {});
    const auto classes = static_cast<int64_t>(dataset.description.classes.size());
    const record::Metrics metrics = metrics_of(stored);
    ASSERT_EQ(metrics.evaluations.size(), 1U);
    const record::EvaluationRecord& recorded = metrics.evaluations.front();
    EXPECT_EQ(recorded.step, run.state.step);
    EXPECT_EQ(recorded.images, dataset.test->size());
    EXPECT_EQ(recorded.raw.loss, run.state.last_evaluation->raw.loss);
    EXPECT_EQ(recorded.averaged.loss, run.state.last_evaluation->averaged.loss);
    expect_recorded(evaluate(*run.model, *dataset.test, classes), recorded.raw);
    const WeightAverage::Applied applied(*run.average);
    expect_recorded(evaluate(*run.model, *dataset.test, classes), recorded.averaged);
  }
}

TEST_F(StoredRuns, Resume) {
  for (const std::string& stored : stored_runs()) {
    SCOPED_TRACE(stored);
    RunRequest request;
    request.folder = folder_.path("run");
    request.resume = true;
    std::filesystem::copy(
        stored, request.folder,
        std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
    Observer observer;
    const RunResult result = run(request, observer);
    EXPECT_EQ(result.steps, 20);
    // The resumed run adds to the records, and its last checkpoint computes what it recorded.
    const record::Metrics metrics = metrics_of(request.folder);
    ASSERT_EQ(metrics.evaluations.size(), 2U);
    EXPECT_EQ(metrics.evaluations[0].raw.loss, metrics_of(stored).evaluations[0].raw.loss);
    EXPECT_EQ(metrics.evaluations[1].step, 20);
    EXPECT_EQ(metrics.evaluations[1].averaged.loss, result.last.averaged.loss);
    const OpenedRun resumed = open_run(request.folder, "last");
    const data::Dataset dataset = open_data(resumed.state.config, {});
    expect_recorded(
        evaluate(*resumed.model, *dataset.test, static_cast<int64_t>(dataset.description.classes.size())),
        metrics.evaluations[1].raw);
    std::filesystem::remove_all(request.folder);
  }
}

}  // namespace
}  // namespace renorm::train
