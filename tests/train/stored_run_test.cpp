#include "train/stored_run.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "base/errors.h"
#include "base/files.h"
#include "record/metrics.h"
#include "run_support.h"
#include "train/run_id.h"

namespace renorm::train {
namespace {

namespace fs = std::filesystem;
using testing::expect_parts;
using testing::message_of;
using testing::Recorder;

// A run that was interrupted, with leftovers of a killed process.
class StoredRunFiles : public testing::Run {
 protected:
  void SetUp() override {
    Run::SetUp();
    interrupt("run", 12);
    std::ofstream(path("config.toml.tmp.123.0")) << "data = ";
    fs::create_directory(path("checkpoints/.tmp-step-000000013-123"));
    fs::remove(path("checkpoints/best"));
  }

  std::string path(const std::string& name) const { return folder_.path("run/" + name); }

  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path("run"))) {
      found[entry.path()] = entry.is_regular_file() ? read_file(entry.path()) : "";
    }
    return found;
  }

  // The sentence with which resuming is refused, before the first step and with nothing changed.
  template <typename Error>
  std::string refusal(const RunRequest& request) {
    const auto before = files();
    Recorder recorder;
    std::string sentence = message_of<Error>([&] { run(request, recorder); });
    EXPECT_TRUE(recorder.steps.empty());
    EXPECT_TRUE(files() == before) << "a refused resume changed the folder";
    return sentence;
  }
  template <typename Error>
  std::string refusal() {
    return refusal<Error>(request("run", /*resume=*/true));
  }

  void replace(const std::string& file, const std::string& from, const std::string& to) const {
    std::string text = read_file(path(file));
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_atomically(path(file), text.replace(at, from.size(), to));
  }
};

TEST_F(StoredRunFiles, AnEditedConfigIsRefusedByTheNamesOfItsEdits) {
  const std::string before = read_file(path("config.toml"));
  replace("config.toml", "\nlr = 0.003\n", "\nlr = 0.5\n");
  replace("config.toml", "\nsampler = \"iid\"\n", "\nsampler = \"labels:4x2\"\n");
  expect_parts(refusal<UsageError>(), {"'" + path("config.toml") + "'", "lr is '0.5' instead of '0.003'",
                                       "sampler is 'labels:4x2' instead of 'iid'", "restore it"});
  write_atomically(path("config.toml"), before);
  EXPECT_EQ(finish("run", /*resume=*/true).steps, 20);
}

TEST_F(StoredRunFiles, AConfigThatCannotBeReadIsRefused) {
  replace("config.toml", "\nlr = 0.003\n", "\nlr = fast\n");
  expect_parts(refusal<UsageError>(), {path("config.toml") + ":", "expected a number"});
}

TEST_F(StoredRunFiles, SettingsThatMayChangeMayBeEdited) {
  replace("config.toml", "\nkeep = 3\n", "\nkeep = 1\n");
  finish("run", /*resume=*/true);
  EXPECT_NE(read_file(path("config.toml")).find("\nkeep = 1\n"), std::string::npos);
  EXPECT_EQ(open_run(folder_.path("run"), "last").state.config.keep, 1);
}

TEST_F(StoredRunFiles, DamagedRecordsAreFoundBeforeTheFirstStep) {
  replace("metrics.jsonl", "\"kind\":\"evaluation\"", "\"kind\":\"evaluatiom\"");
  expect_parts(refusal<DataError>(), {path("metrics.jsonl") + ":3", "evaluatiom"});
}

TEST_F(StoredRunFiles, RecordsOfAnotherLengthAreFoundBeforeTheFirstStep) {
  const std::string text = read_file(path("metrics.jsonl"));
  write_atomically(path("metrics.jsonl"), " " + text);
  expect_parts(refusal<DataError>(), {path("metrics.jsonl"), "altered"});
  write_atomically(path("metrics.jsonl"), text.substr(0, text.size() / 2));
  expect_parts(refusal<DataError>(), {path("metrics.jsonl"), "truncated or replaced"});
  fs::remove(path("metrics.jsonl"));
  expect_parts(refusal<MissingInputError>(), {path("metrics.jsonl")});
}

TEST_F(StoredRunFiles, ASummaryThatLostLinesIsFoundBeforeTheFirstStep) {
  fs::resize_file(path("summary.csv"), 10);
  expect_parts(refusal<DataError>(), {path("summary.csv"), "truncated or replaced"});
}

TEST_F(StoredRunFiles, FilesOfAnotherRunAreRefused) {
  const std::string id = run_id_of(read_file(path("config.toml")));
  const std::string other = "0123456789abcdef";
  for (const char* file : {"config.toml", "metrics.jsonl"}) {
    replace(file, id, other);
    expect_parts(refusal<DataError>(), {path(file), other, id});
    replace(file, other, id);
  }
}

// A run without a checkpoint starts again, with empty records.
TEST_F(StoredRunFiles, RecordsOfOthersAreNotEmptiedBeforeTheFirstCheckpoint) {
  fs::remove_all(path("checkpoints"));
  const std::string metrics = read_file(path("metrics.jsonl")), summary = read_file(path("summary.csv"));
  const std::string id = run_id_of(read_file(path("config.toml")));
  replace("metrics.jsonl", id, "0123456789abcdef");
  expect_parts(refusal<DataError>(), {path("metrics.jsonl"), "0123456789abcdef", "config.toml", id});
  for (const char* text : {"precious\n", "precious", "\nprecious\n"}) {
    write_atomically(path("metrics.jsonl"), text);
    expect_parts(refusal<DataError>(), {path("metrics.jsonl")});
  }
  write_atomically(path("metrics.jsonl"), metrics);
  for (const char* text : {"precious\n", "precious", "\nprecious\n"}) {
    write_atomically(path("summary.csv"), text);
    expect_parts(refusal<DataError>(), {path("summary.csv"), "restore it"});
    fs::remove(path("metrics.jsonl"));
    expect_parts(refusal<DataError>(), {path("summary.csv"), "restore it"});
    EXPECT_NE(message_of<UsageError>([&] {
                Recorder recorder;
                run(request("run"), recorder);
              }).find("run"),
              std::string::npos);
    EXPECT_EQ(read_file(path("summary.csv")), text);
    write_atomically(path("metrics.jsonl"), metrics);
  }
  write_atomically(path("summary.csv"), summary);
  EXPECT_EQ(finish("run", /*resume=*/true).steps, 20);
}

// A process that is killed in its first write leaves a line cut short, and so does a loss of power.
TEST_F(StoredRunFiles, FirstLinesThatWereCutShortAreNoObstacle) {
  const std::string metrics = read_file(path("metrics.jsonl")), header = record::summary_csv_header();
  for (const std::string& first : {metrics.substr(0, 100), metrics.substr(0, 3), std::string(4096, '\0'),
                                   metrics.substr(0, 100) + std::string(50, '\0'), std::string()}) {
    for (const std::string& second : {header.substr(0, 20), std::string(10, '\0'), header, header + "\n"}) {
      fs::remove_all(path("checkpoints"));
      write_atomically(path("metrics.jsonl"), first);
      write_atomically(path("summary.csv"), second);
      EXPECT_EQ(finish("run", /*resume=*/true).steps, 20);
    }
  }
}

TEST_F(StoredRunFiles, OtherSettingsAreRefusedWithNothingChanged) {
  RunRequest other = request("run", /*resume=*/true);
  other.config.lr = 0.5;
  other.given = {"lr"};
  expect_parts(refusal<UsageError>(other), {"--lr", "0.5"});
}

TEST_F(StoredRunFiles, AForeignFolderWithTheNameOfALaterStepIsRefusedWithNothingChanged) {
  fs::create_directory(path("checkpoints/step-000000020"));
  std::ofstream(path("checkpoints/step-000000020/notes")) << "mine";
  expect_parts(refusal<OutputError>(), {"step-000000020", "not a checkpoint of renorm; move it away"});
}

TEST_F(StoredRunFiles, ARunThatLostItsCheckpointsStartsAgainWithANote) {
  fs::remove_all(path("checkpoints"));
  Recorder recorder;
  run(request("run", /*resume=*/true), recorder);
  ASSERT_EQ(recorder.notes.size(), 1u);
  EXPECT_EQ(recorder.notes[0],
            "'" + path("checkpoints") + "' has no checkpoint, so training starts again at step 1");
  EXPECT_EQ(recorder.steps.front(), 1);
}

TEST_F(StoredRunFiles, ARunWhoseNewestCheckpointIsMissingContinuesAfterTheOneBeforeWithANote) {
  fs::remove_all(path("checkpoints/step-000000012"));
  Recorder recorder;
  run(request("run", /*resume=*/true), recorder);
  ASSERT_EQ(recorder.notes.size(), 1u);
  expect_parts(recorder.notes[0], {path("checkpoints"), " is missing; continuing after step 10"});
  EXPECT_EQ(recorder.steps.front(), 11);
}

TEST_F(StoredRunFiles, ARunWithoutAValidCheckpointIsRefusedWithNothingChanged) {
  for (const auto& entry : fs::directory_iterator(path("checkpoints"))) {
    if (entry.is_directory() && !entry.is_symlink()) fs::remove(entry.path() / "model.safetensors");
  }
  expect_parts(refusal<DataError>(), {"no good checkpoint", "model.safetensors"});
}

}  // namespace
}  // namespace renorm::train
