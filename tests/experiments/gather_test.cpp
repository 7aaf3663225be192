#include "experiments/gather.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/errors.h"
#include "experiments/children.h"
#include "experiments/experiment_folder.h"
#include "experiments/kinds.h"
#include "record/eval_result.h"
#include "record/metrics.h"
#include "temporary_folder.h"
#include "train/checkpoint.h"
#include "train/config_file.h"

namespace renorm::experiments {
namespace {

class Gather : public renorm::testing::TemporaryFolder {
 protected:
  // Two arms of 20 steps with two seeds.
  record::Results blank() const {
    ExperimentOptions options;
    options.steps = 20;
    options.seeds = 2;
    options.arms = {"iid-batchnorm", "blocks-batchnorm"};
    return blank_results(make_experiment(paper(), options));
  }

  static std::string evaluation(int64_t step, double accuracy) {
    record::EvaluationRecord record;
    record.step = step;
    record.split = "test";
    record.images = 400;
    record.averaged.accuracy = accuracy;
    return to_json_line(record) + "\n";
  }
  static std::string step(int64_t step, double loss, double clipped) {
    record::StepRecord record;
    record.step = step;
    record.loss = loss;
    record.r_clipped_above = clipped;
    record.r_clipped_below = clipped;
    return to_json_line(record) + "\n";
  }

  static std::string eval_json(double accuracy, int64_t step) {
    record::EvalResult result;
    result.averaged.accuracy = accuracy;
    result.step = step;
    return to_json(result);
  }

  void put_run(const std::string& run, const std::string& metrics) const {
    std::filesystem::create_directories(path("runs/" + run));
    put("runs/" + run + "/config.toml", "");
    put("runs/" + run + "/metrics.jsonl", metrics);
  }
  // The state of a run's newest checkpoint.
  void put_state(const std::string& run, int64_t step) const {
    std::filesystem::create_directories(path(run + "/checkpoints/last"));
    train::RunState state;
    state.step = step;
    state.config.steps = 20;
    state.data = {"strokes", {"a", "b"}, 1, 8, 8, {0.5}, {0.5}, 1.0, ""};
    put(run + "/checkpoints/last/state.json", to_json(state));
  }
};

TEST_F(Gather, AFolderWithoutRunsHasNotStarted) {
  record::Results results = blank();
  gather(folder_, &results);
  EXPECT_FALSE(results.finished);
  EXPECT_FALSE(has_runs(folder_, results));
  EXPECT_TRUE(results.arms[0].curve.empty());
}

TEST_F(Gather, SettingsWithoutRecordsAreNoRun) {
  put_run("iid-batchnorm/seed-1", "");
  put("runs/iid-batchnorm/seed-1/lock", "");
  EXPECT_FALSE(has_runs(folder_, blank()));
  put_run("iid-batchnorm/seed-1", step(10, 2.0, 0.1));
  EXPECT_TRUE(has_runs(folder_, blank()));
}

TEST_F(Gather, CurvesHaveAllSeedsAndFiguresOnlyFinishedOnes) {
  put_run("iid-batchnorm/seed-1",
          step(10, 2.0, 0.1) + evaluation(10, 40.0) + step(20, 1.0, 0.0) + evaluation(20, 60.0));
  put_state("runs/iid-batchnorm/seed-1", 20);
  put_run("iid-batchnorm/seed-2", step(10, 4.0, 0.3) + evaluation(10, 50.0));
  record::Results results = blank();
  gather(folder_, &results);
  const record::Arm& arm = results.arms[0];
  EXPECT_TRUE(has_runs(folder_, results));
  EXPECT_EQ(results.test_images, 400);
  EXPECT_EQ(arm.test_accuracy.values, std::vector<double>{60.0});
  ASSERT_EQ(arm.curve.size(), 2U);
  EXPECT_EQ(arm.curve[0].values, (std::vector<double>{40.0, 50.0}));
  EXPECT_EQ(arm.curve[0].mean, 45.0);
  EXPECT_EQ(arm.training.at(0).loss, 3.0);
  EXPECT_TRUE(std::isnan(arm.training.at(0).r_clipped));  // batchnorm
  EXPECT_TRUE(arm.runs[0].finished);
  EXPECT_EQ(arm.runs[1].steps_done, 10);
  EXPECT_EQ(arm.steps_to_reference.values, std::vector<double>{20.0});
}

TEST_F(Gather, StepsToTheReferenceAreThoseOfEachRunAlsoIfAnEarlierSeedIsBehind) {
  put_run("iid-batchnorm/seed-1", evaluation(10, 40.0));
  put_run("iid-batchnorm/seed-2", evaluation(10, 30.0) + evaluation(20, 60.0));
  put_state("runs/iid-batchnorm/seed-2", 20);
  put_run("blocks-batchnorm/seed-1", evaluation(10, 61.0));
  put_run("blocks-batchnorm/seed-2", evaluation(10, 20.0) + evaluation(20, 61.0));
  record::Results results = blank();
  gather(folder_, &results);
  EXPECT_EQ(results.arms[1].steps_to_reference.values, (std::vector<double>{10.0, 20.0}));
}

TEST_F(Gather, AnArmIsFinishedWhenItsEvaluationsAreThere) {
  put_run("blocks-batchnorm/seed-1", evaluation(20, 30.0));
  record::Results results = blank();
  const record::Arm& arm = results.arms[1];
  put_state("runs/blocks-batchnorm/seed-1", 18);  // killed before its last checkpoint
  EXPECT_FALSE(progress_of(arm, path("runs/blocks-batchnorm/seed-1")).trained);
  put_state("runs/blocks-batchnorm/seed-1", 20);
  RunProgress progress = progress_of(arm, path("runs/blocks-batchnorm/seed-1"));
  EXPECT_TRUE(progress.trained && progress.needs_training_set && progress.needs_batch_statistics);
  EXPECT_FALSE(progress.finished());
  put("runs/blocks-batchnorm/seed-1/training-set.json", eval_json(4.5, 18));
  EXPECT_TRUE(progress_of(arm, path("runs/blocks-batchnorm/seed-1")).needs_training_set);
  put("runs/blocks-batchnorm/seed-1/training-set.json", eval_json(44.5, 20));
  put("runs/blocks-batchnorm/seed-1/batch-statistics.json", eval_json(50.5, 20));
  EXPECT_TRUE(progress_of(arm, path("runs/blocks-batchnorm/seed-1")).finished());
  gather(folder_, &results);
  EXPECT_EQ(results.arms[1].train_accuracy->values, std::vector<double>{44.5});
  EXPECT_EQ(results.arms[1].batch_statistics_accuracy->values, std::vector<double>{50.5});
}

TEST_F(Gather, DamagedFilesAreNamed) {
  put_run("iid-batchnorm/seed-1", "rubbish\n");
  record::Results results = blank();
  try {
    gather(folder_, &results);
    ADD_FAILURE() << "no error";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("runs/iid-batchnorm/seed-1/metrics.jsonl:1"), std::string::npos)
        << error.what();
  }
}

// A folder of a stranger may have links, and names of folders elsewhere.
class GatherForeign : public Gather {
 protected:
  void SetUp() override {
    Gather::SetUp();
    std::filesystem::create_directories(path("own"));
    put("own/config.toml", "");
    put("own/metrics.jsonl", evaluation(20, 99.0));
    put_state("own", 20);
  }
  void expect_refused(const std::string& part) const {
    record::Results results = blank();
    renorm::testing::expect_error<DataError>(part, [&] { gather(folder_, &results); });
  }
};

TEST_F(GatherForeign, LinkedRunIsNotRead) {
  std::filesystem::create_directories(path("runs/iid-batchnorm"));
  std::filesystem::create_directory_symlink(path("own"), path("runs/iid-batchnorm/seed-1"));
  expect_refused("'seed-1' is a symbolic link");
}

TEST_F(GatherForeign, LinkedFileIsNotRead) {
  put_run("iid-batchnorm/seed-1", "");
  for (const char* name : {"metrics.jsonl", "checkpoints"}) {
    const std::string link = path(std::string("runs/iid-batchnorm/seed-1/") + name);
    std::filesystem::remove(link);
    std::filesystem::create_symlink(path(std::string("own/") + name), link);
    expect_refused(std::string("'") + name + "' is a symbolic link");
    std::filesystem::remove(link);
  }
}

TEST_F(GatherForeign, LastCheckpointIsALinkToOneBesideIt) {
  put_run("iid-batchnorm/seed-1", evaluation(20, 60.0));
  put_state("runs/iid-batchnorm/seed-1", 20);
  const std::string checkpoints = path("runs/iid-batchnorm/seed-1/checkpoints/");
  std::filesystem::rename(checkpoints + "last", checkpoints + "step-000000020");
  std::filesystem::create_directory_symlink("step-000000020", checkpoints + "last");
  record::Results results = blank();
  gather(folder_, &results);
  EXPECT_TRUE(results.arms[0].runs[0].finished);
  for (const std::string& target :
       {path("own/checkpoints/last"), std::string("../../../../own/checkpoints/last")}) {
    std::filesystem::remove(checkpoints + "last");
    std::filesystem::create_directory_symlink(target, checkpoints + "last");
    expect_refused("outside of the folder");
  }
}

TEST_F(GatherForeign, StoredFolderOfARunIsBelowTheResults) {
  for (const std::string& name : {std::string("../own"), path("own"), std::string("runs/../../own")}) {
    record::Results results = blank();
    results.arms[0].runs[0].folder = name;
    put("results.json", to_json(results));
    renorm::testing::expect_error<DataError>("must be a path inside the folder of the results",
                                             [&] { read_results(folder_); });
  }
  std::filesystem::remove(path("results.json"));
  put("elsewhere", to_json(blank()));
  std::filesystem::create_symlink("elsewhere", path("results.json"));
  renorm::testing::expect_error<DataError>("is a symbolic link", [&] { read_results(folder_); });
}

TEST_F(Gather, RunsOfTheTrainerAreArmsOfTheirOwn) {
  for (const char* name : {"one", "two"}) {
    std::filesystem::create_directories(path(name));
    train::Config config;
    config.steps = 20;
    put(std::string(name) + "/config.toml", train::to_toml(config));
    put(std::string(name) + "/metrics.jsonl", evaluation(20, 70.0));
    put_state(name, 20);
  }
  const record::Results results = results_of_runs({path("one"), path("two") + "/"});
  ASSERT_EQ(results.arms.size(), 2U);
  EXPECT_EQ(results.arms[0].name, "one");
  EXPECT_EQ(results.arms[1].name, "two");
  EXPECT_EQ(results.arms[1].test_accuracy.mean, 70.0);
  EXPECT_TRUE(results.claims.empty());
  EXPECT_THROW(results_of_runs({path("three")}), MissingInputError);
  std::filesystem::create_directories(path("other"));
  std::filesystem::rename(path("two"), path("other/one"));
  const record::Results same_name = results_of_runs({path("one"), path("other/one")});
  EXPECT_EQ(same_name.arms[1].name, "other/one");
}

TEST_F(Gather, AnotherExperimentIsRefusedAndTheSameIsMerged) {
  ExperimentOptions options;
  options.arms = {"pairs-renorm"};
  options.seeds = 2;
  const record::Results stored = blank_results(make_experiment(paper(), options));
  options.arms = {"iid-renorm", "pairs-renorm"};
  options.seeds = 1;
  record::Results wanted = blank_results(make_experiment(paper(), options));
  merge_stored(stored, "DIR", &wanted);
  ASSERT_EQ(wanted.arms.size(), 2U);
  EXPECT_EQ(wanted.arms[1].runs.size(), 2U);
  EXPECT_EQ(wanted.arms[0].runs.size(), 1U);
  EXPECT_EQ(wanted.seeds, (std::vector<uint64_t>{1, 2}));
  options.steps = 7;
  record::Results other = blank_results(make_experiment(paper(), options));
  EXPECT_THROW(merge_stored(stored, "DIR", &other), UsageError);
}

TEST_F(Gather, ResultsWithoutTheirRunsAreNotOverwritten) {
  record::Results results = blank();
  EXPECT_NO_THROW(check_empty(results, "DIR"));
  results.arms[0].curve = {{10, 50.0, {50.0}}};
  EXPECT_THROW(check_empty(results, "DIR"), UsageError);
}

TEST_F(Gather, AFolderWithOtherFilesIsNoExperiment) {
  EXPECT_FALSE(holds_results(path("new")));
  put("lock", "");
  put("results.json.tmp.12", "");
  EXPECT_FALSE(holds_results(folder_));
  put("thesis.tex", "x");
  EXPECT_THROW(holds_results(folder_), UsageError);
  put("results.json", "{");
  EXPECT_TRUE(holds_results(folder_));
  EXPECT_THROW(read_results(folder_), DataError);
}

TEST_F(Gather, TheLastLineOfALogIsWhatAProcessSaid) {
  put("log", "step 1\nrenorm: no space left\n\n");
  EXPECT_EQ(last_line(path("log")), "no space left");
  put("empty", "");
  EXPECT_EQ(last_line(path("empty")), "");
  EXPECT_EQ(last_line(path("deleted")), "");
}

TEST_F(Gather, ALogThatIsALinkIsNotFollowed) {
  put("target", "own");
  std::filesystem::create_symlink("target", path("log"));
  EXPECT_THROW(Child({"--gtest_list_tests"}, path("log")), OutputError);
  EXPECT_EQ(get("target"), "own");
}

}  // namespace
}  // namespace renorm::experiments
