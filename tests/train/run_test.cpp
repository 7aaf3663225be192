#include "train/run.h"

#include <fstream>

#include "base/errors.h"
#include "base/files.h"
#include "run_support.h"
#include "train/evaluate.h"
#include "train/run_folder.h"

namespace renorm::train {
namespace {

using testing::expect_parts;
using testing::message_of;
using testing::Recorder;
using testing::Run;

TEST_F(Run, LeavesConfigMetricsSummaryAndCheckpoints) {
  const RunResult result = finish("run");
  EXPECT_EQ(result.steps, 20);
  const record::Metrics metrics =
      record::parse_metrics(read_file(folder_.path("run/metrics.jsonl")), "metrics");
  std::vector<int64_t> logged;
  for (const record::StepRecord& step : metrics.steps) logged.push_back(step.step);
  EXPECT_EQ(logged, (std::vector<int64_t>{5, 10, 15, 20}));
  ASSERT_EQ(metrics.evaluations.size(), 2U);
  EXPECT_EQ(metrics.evaluations.back().step, 20);
  EXPECT_EQ(metrics.steps.back().layers.size(), 2U);
  for (const record::StepRecord& step : metrics.steps) EXPECT_GT(step.images_per_second, 0.0);
  EXPECT_EQ(list_folder(folder_.path("run")),
            (std::vector<std::string>{"checkpoints", "config.toml", "lock", "metrics.jsonl", "summary.csv"}));
  EXPECT_DOUBLE_EQ(result.last.averaged.accuracy, metrics.evaluations.back().averaged.accuracy);
}

TEST_F(Run, WhatIsPrintedIsWhatTheCheckpointGives) {
  const RunResult result = finish("run");
  OpenedRun opened = open_run(folder_.path("run"), "last");
  const data::Dataset dataset = open_data(opened.state.config, {});
  const Evaluation raw = evaluate(*opened.model, *dataset.test, 4);
  EXPECT_EQ(raw.accuracy(), result.last.raw.accuracy);
  EXPECT_EQ(raw.loss, result.last.raw.loss);
  const WeightAverage::Applied applied(*opened.average);
  const Evaluation averaged = evaluate(*opened.model, *dataset.test, 4);
  EXPECT_EQ(averaged.accuracy(), result.last.averaged.accuracy);
  EXPECT_EQ(averaged.loss, result.last.averaged.loss);
}

TEST_F(Run, InterruptedAndResumedEndsWithTheSameBytes) {
  finish("whole");
  interrupt("parts", 3);
  interrupt("parts", 12, /*resume=*/true);
  finish("parts", /*resume=*/true);
  expect_same_state("whole", "parts");
}

TEST_F(Run, WithoutACheckpointResumingStartsAnew) {
  finish("whole");
  interrupt("parts", 3);
  std::filesystem::remove_all(folder_.path("parts/checkpoints"));
  finish("parts", /*resume=*/true);
  expect_same_state("whole", "parts");
}

TEST_F(Run, KilledBeforeTheConfigWasWrittenItStartsAnew) {
  std::filesystem::create_directories(folder_.path("run"));
  std::ofstream(folder_.path("run/lock")) << "";
  std::ofstream(folder_.path("run/config.toml.tmp.123.0")) << "data = ";
  std::ofstream(folder_.path("run/writable.tmp.123.0")) << "";
  finish("run");
  EXPECT_EQ(list_folder(folder_.path("run")),
            (std::vector<std::string>{"checkpoints", "config.toml", "lock", "metrics.jsonl", "summary.csv"}));
}

TEST_F(Run, ResumingWithoutARunAndWithoutSettingsIsRefused) {
  std::filesystem::create_directories(folder_.path("locked"));
  std::ofstream(folder_.path("locked/lock")) << "";
  std::filesystem::create_directories(folder_.path("photos"));
  std::ofstream(folder_.path("photos/cat.jpg")) << "cat";
  for (const char* name : {"nothing", "locked", "photos"}) {
    // A setting that may change in the course of a run does not describe a new one.
    for (const std::vector<std::string>& given : {std::vector<std::string>{}, {"keep"}}) {
      RunRequest lost = request(name, /*resume=*/true);
      lost.given = given;
      Recorder recorder;
      expect_parts(message_of<MissingInputError>([&] { run(lost, recorder); }),
                   {"no run to resume in '" + folder_.path(name) + "'", "--out", "without --resume"});
      EXPECT_TRUE(recorder.steps.empty());
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.path("nothing")));
  EXPECT_EQ(list_folder(folder_.path("locked")), (std::vector<std::string>{"lock"}));
  EXPECT_EQ(list_folder(folder_.path("photos")), (std::vector<std::string>{"cat.jpg"}));
}

TEST_F(Run, ResumingWithoutARunStartsItWithTheSettingsGiven) {
  RunRequest fresh = request("run", /*resume=*/true);
  fresh.given = {"data", "steps"};
  Recorder recorder;
  EXPECT_EQ(run(fresh, recorder).steps, 20);
}

TEST_F(Run, StoppedBeforeTheFirstStepItResumesWithItsOwnSettings) {
  finish("whole");
  Recorder recorder;
  recorder.stop = true;
  RunRequest stopped = request("parts");
  stopped.stop = &recorder.stop;
  expect_parts(message_of<Interrupted>([&] { run(stopped, recorder); }), {"before", "--resume"});
  EXPECT_TRUE(recorder.steps.empty());
  EXPECT_EQ(list_folder(folder_.path("parts")), (std::vector<std::string>{"config.toml", "lock"}));
  config_ = Config();
  finish("parts", /*resume=*/true);
  expect_same_state("whole", "parts");
}

TEST_F(Run, StoppedBeforeItsNextStepAResumedRunLosesNothing) {
  finish("whole");
  interrupt("parts", 6);
  Recorder recorder;
  recorder.stop = true;
  RunRequest stopped = request("parts", /*resume=*/true);
  stopped.stop = &recorder.stop;
  EXPECT_THROW(run(stopped, recorder), Interrupted);
  EXPECT_TRUE(recorder.steps.empty());
  finish("parts", /*resume=*/true);
  expect_same_state("whole", "parts");
}

// The fixture for runs that fail because their data is missing.
class UnstartedRun : public Run {
 protected:
  void SetUp() override {
    Run::SetUp();
    good_ = config_;
    config_.data = "mnist:" + folder_.path("none");
    config_.lr = 0.125;
    message_of<MissingInputError>([&] { finish("run"); });
  }

  Config good_;
};

TEST_F(UnstartedRun, KeepsItsSettings) {
  EXPECT_EQ(list_folder(folder_.path("run")), (std::vector<std::string>{"config.toml", "lock"}));
  config_ = Config();
  expect_parts(message_of<MissingInputError>([&] { finish("run", /*resume=*/true); }),
               {folder_.path("none")});
}

TEST_F(UnstartedRun, DoesNotBlockARetryWithOtherSettings) {
  config_ = good_;
  finish("run");
  finish("whole");
  expect_same_state("whole", "run");
}

TEST_F(UnstartedRun, IsCorrectedByTheSettingsGivenToResumeIt) {
  RunRequest corrected = request("run", /*resume=*/true);
  corrected.config = Config();
  corrected.config.data = good_.data;
  corrected.given = {"data"};
  Recorder recorder;
  run(corrected, recorder);
  ASSERT_EQ(recorder.notes.size(), 1U);
  expect_parts(recorder.notes.front(), {"nothing was trained", "--data"});
  config_.data = good_.data;
  finish("whole");
  expect_same_state("whole", "run");
}

TEST_F(UnstartedRun, TakesItsLengthInTheOtherUnit) {
  RunRequest corrected = request("run", /*resume=*/true);
  corrected.config = Config();
  corrected.config.data = good_.data;
  corrected.config.epochs = 5.0;  // 64 images, 32 per step
  corrected.given = {"data", "epochs"};
  Recorder recorder;
  EXPECT_EQ(run(corrected, recorder).steps, 10);
}

TEST_F(Run, KeepsRecordsWithoutACheckpoint) {
  config_.checkpoint_every = 10;
  interrupt("run", 6);
  std::filesystem::remove_all(folder_.path("run/checkpoints"));
  expect_parts(message_of<UsageError>([&] { finish("run"); }), {"holds a run already", "--resume"});
  EXPECT_GT(std::filesystem::file_size(folder_.path("run/metrics.jsonl")), 0U);
}

TEST_F(Run, DoesNotOverwriteAConfigThatNoRunWrote) {
  std::filesystem::create_directories(folder_.path("run"));
  std::ofstream(folder_.path("run/config.toml")) << "# precious\n";
  expect_parts(message_of<UsageError>([&] { finish("run"); }), {"holds a run already"});
  EXPECT_EQ(read_file(folder_.path("run/config.toml")), "# precious\n");
}

TEST_F(Run, ADamagedCheckpointIsNamedAndTheOneBeforeIsTaken) {
  finish("whole");
  interrupt("parts", 12);
  const std::string damaged = folder_.path("parts/checkpoints/last/optimizer.safetensors");
  std::filesystem::resize_file(damaged, std::filesystem::file_size(damaged) - 1);
  Recorder recorder;
  run(request("parts", /*resume=*/true), recorder);
  ASSERT_FALSE(recorder.notes.empty());
  expect_parts(recorder.notes.front(), {"optimizer.safetensors", "step-"});
  EXPECT_EQ(recorder.steps.front(), 11);
  expect_same_state("whole", "parts");
}

TEST_F(Run, OpeningARunNamesItsDamagedCheckpointAndTheStepTaken) {
  interrupt("run", 12);
  EXPECT_TRUE(open_run(folder_.path("run"), "last").notes.empty());
  std::filesystem::remove(folder_.path("run/checkpoints/last/optimizer.safetensors"));
  for (const char* name : {"last", "best"}) {
    const OpenedRun opened = open_run(folder_.path("run"), name);
    EXPECT_EQ(opened.state.step, 10);
    ASSERT_EQ(opened.notes.size(), 1U);
    expect_parts(opened.notes.front(), {"step-000000012/optimizer.safetensors", "using step 10"});
  }
}

TEST_F(Run, AFinishedRunIsNotRunTwice) {
  const RunResult first = finish("run");
  Recorder recorder;
  const RunResult second = run(request("run", /*resume=*/true), recorder);
  EXPECT_TRUE(recorder.steps.empty());
  EXPECT_EQ(second.steps, first.steps);
  EXPECT_EQ(second.last.averaged.accuracy, first.last.averaged.accuracy);
  EXPECT_EQ(second.best_step, first.best_step);
  EXPECT_EQ(second.last.seconds, first.last.seconds);  // not evaluated again
}

TEST_F(Run, AFinishedRunOfAnOlderVersionIsEvaluatedAgain) {
  const RunResult first = finish("run");
  const CheckpointFolder checkpoints(folder_.path("run/checkpoints"));
  Checkpoint checkpoint = checkpoints.newest(nullptr);
  ASSERT_TRUE(checkpoint.state.last_evaluation);
  checkpoint.state.last_evaluation.reset();
  CheckpointFolder(checkpoints).write(checkpoint, 3);
  const RunResult second = finish("run", /*resume=*/true);
  EXPECT_EQ(second.last.step, 20);
  EXPECT_EQ(second.last.averaged.accuracy, first.last.averaged.accuracy);
  EXPECT_EQ(second.last.averaged.loss, first.last.averaged.loss);
  EXPECT_EQ(second.last.raw.loss, first.last.raw.loss);
}

TEST_F(Run, KilledBeforeTheLinksWereSetTheyAreSetByResuming) {
  finish("run");
  const std::string link = folder_.path("run/checkpoints/last");
  std::filesystem::remove(link);
  std::filesystem::create_symlink("step-000000010", link);
  finish("run", /*resume=*/true);
  EXPECT_EQ(std::filesystem::read_symlink(link), "step-000000020");
}

TEST_F(Run, RefusesAFolderThatHoldsAnotherRunOrOtherFiles) {
  finish("run");
  expect_parts(message_of<UsageError>([&] { finish("run"); }), {"run", "--resume"});
  std::filesystem::create_directories(folder_.path("photos"));
  std::ofstream(folder_.path("photos/cat.jpg")) << "cat";
  expect_parts(message_of<UsageError>([&] { finish("photos"); }), {"photos", "empty or new folder"});
  EXPECT_EQ(list_folder(folder_.path("photos")), (std::vector<std::string>{"cat.jpg"}));
}

TEST_F(Run, ResumingWithOtherSettingsIsRefusedByName) {
  interrupt("run", 6);
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"lr", "0.01"},
                                                        {"model", "convnet:8,16/2"},
                                                        {"sampler", "labels:4x2"},
                                                        {"steps", "30"},
                                                        {"seed", "2"}}) {
    RunRequest other = request("run", /*resume=*/true);
    find_setting(name).set(other.config, value);
    other.given = {name};
    Recorder recorder;
    expect_parts(message_of<UsageError>([&] { run(other, recorder); }), {"--" + name, value});
  }
  RunRequest more = request("run", /*resume=*/true);
  find_setting("keep").set(more.config, "1");
  more.given = {"keep", "lr"};
  Recorder recorder;
  EXPECT_EQ(run(more, recorder).steps, 20);
}

TEST_F(Run, RepeatingTheCommandResumesItWhateverFormTheSettingsHave) {
  config_.steps = 0;
  config_.epochs = 10.0;  // 64 images, 32 per step: 20 steps
  config_.microbatch = 0;
  config_.eval_every = 0;
  Recorder recorder;
  recorder.stop_after = 6;
  RunRequest first = request("run");
  first.stop = &recorder.stop;
  EXPECT_THROW(run(first, recorder), Interrupted);
  RunRequest again = request("run", /*resume=*/true);
  again.given = {"epochs", "microbatch", "eval-every", "minibatch", "threads"};
  Recorder rest;
  EXPECT_EQ(run(again, rest).steps, 20);
}

TEST_F(Run, TwoProcessesDoNotTrainInOneFolder) {
  std::filesystem::create_directories(folder_.path("run"));
  const FolderLock lock(folder_.path("run/lock"));
  expect_parts(message_of<OutputError>([&] { finish("run"); }), {"another process", "run/lock"});
}

TEST_F(Run, AFolderThatCannotBeMadeIsFoundOutBeforeTheFirstStep) {
  std::ofstream(folder_.path("file")) << "x";
  Recorder recorder;
  RunRequest bad = request("file/run");
  EXPECT_THROW(run(bad, recorder), OutputError);
  EXPECT_TRUE(recorder.steps.empty());
}

TEST_F(Run, MetricsThatLostLinesAreRefused) {
  interrupt("run", 6);
  std::filesystem::resize_file(folder_.path("run/metrics.jsonl"), 3);
  expect_parts(message_of<DataError>([&] { finish("run", /*resume=*/true); }), {"metrics.jsonl"});
}

TEST_F(Run, OpeningWhatIsNoRunSaysSo) {
  expect_parts(message_of<MissingInputError>([&] { open_run(folder_.path("nothing"), "last"); }),
               {"nothing"});
}

}  // namespace
}  // namespace renorm::train
