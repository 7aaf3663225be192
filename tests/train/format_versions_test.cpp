// Runs that earlier versions wrote: stored_runs/format-N has one per version N of state.json. Each was
// stopped after step 10 of 20.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
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
    const Evaluation raw = evaluate(*run.model, *dataset.test, classes);
    EXPECT_NEAR(raw.loss, run.state.last_evaluation->raw.loss, kLossTolerance);
    const WeightAverage::Applied applied(*run.average);
    const Evaluation averaged = evaluate(*run.model, *dataset.test, classes);
    EXPECT_NEAR(averaged.loss, run.state.last_evaluation->averaged.loss, kLossTolerance);
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
    EXPECT_TRUE(std::isfinite(result.last.averaged.loss));
    std::filesystem::remove_all(request.folder);
  }
}

}  // namespace
}  // namespace renorm::train
