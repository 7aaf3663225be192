#include "train/run_folder.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "base/errors.h"
#include "base/files.h"
#include "run_support.h"
#include "train/config_file.h"
#include "train/run_id.h"

namespace renorm::train {
namespace {

namespace fs = std::filesystem;
using testing::expect_parts;
using testing::message_of;
using testing::Recorder;

// A run whose folder is abused while it trains.
class RunFolder : public testing::Run {
 protected:
  // All files by name, with their bytes, and links with their targets.
  std::map<std::string, std::string> files(const std::string& name) const {
    std::map<std::string, std::string> found;
    if (!fs::exists(folder_.path(name))) return found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path(name))) {
      const std::string path = entry.path();
      if (entry.is_symlink()) {
        found[path] = "-> " + fs::read_symlink(path).string();
      } else if (entry.is_regular_file()) {
        found[path] = read_file(path);
      }
    }
    return found;
  }

  // Trains, with `abuse` after step 12, two steps after a checkpoint. The run must stop with one sentence and
  // leave everything as `abuse` left it.
  void expect_stop(const std::function<void()>& abuse, const std::string& file = "lock") {
    std::map<std::string, std::string> left;
    Recorder recorder;
    recorder.after_step = [&](int64_t step) {
      if (step != 12) return;
      abuse();
      left = files("run");
    };
    const RunRequest old = request("run");
    expect_parts(message_of<IoError>([&] { run(old, recorder); }),
                 {"'" + folder_.path("run/" + file) + "' was deleted", "writes nothing more"});
    EXPECT_EQ(recorder.steps.back(), 15);  // of the next record
    EXPECT_TRUE(files("run") == left);
  }

  std::string first_line(const std::string& file) const {
    std::ifstream stream(folder_.path(file));
    std::string line;
    std::getline(stream, line);
    return line;
  }
};

TEST_F(RunFolder, ANewRunInADeletedFolderIsLeftAlone) {
  expect_stop([&] {
    fs::remove_all(folder_.path("run"));
    config_.seed = 2;
    finish("run");
  });
  finish("other");
  expect_same_state("other", "run");
}

TEST_F(RunFolder, ARunThatWasResumedAfterItsLockWasDeletedIsLeftAlone) {
  finish("whole");
  expect_stop([&] {
    fs::remove(folder_.path("run/lock"));
    finish("run", /*resume=*/true);
  });
  expect_same_state("whole", "run");
}

TEST_F(RunFolder, ADeletedFolderIsNotMadeAgain) {
  expect_stop([&] { fs::remove_all(folder_.path("run")); });
  EXPECT_FALSE(fs::exists(folder_.path("run")));
}

TEST_F(RunFolder, AMovedFolderIsLeftAsItIs) {
  expect_stop([&] { fs::rename(folder_.path("run"), folder_.path("moved")); });
  EXPECT_EQ(fs::read_symlink(folder_.path("moved/checkpoints/last")), "step-000000010");
}

TEST_F(RunFolder, ADeletedLockAloneStopsTheRunWhichCanBeResumed) {
  finish("whole");
  expect_stop([&] { fs::remove(folder_.path("run/lock")); });
  finish("run", /*resume=*/true);
  expect_same_state("whole", "run");
}

TEST_F(RunFolder, AFileOfRecordsThatIsReplacedOrAlteredStopsTheRunWhichContinuesWithTheOldOne) {
  finish("whole");
  for (const char* name : {"metrics.jsonl", "summary.csv"}) {
    const std::string path = folder_.path(std::string("run/") + name);
    const std::string kept = folder_.path("kept");
    expect_stop(
        [&] {
          fs::rename(path, kept);
          std::ofstream(path) << "mine\n";
        },
        name);
    fs::rename(kept, path);
    finish("run", /*resume=*/true);
    expect_same_state("whole", "run");
    fs::remove_all(folder_.path("run"));
    expect_stop([&] { std::ofstream(path) << "mine\n"; }, name);
    fs::remove_all(folder_.path("run"));
  }
}

TEST_F(RunFolder, TheIdOfARunIsInAllItsFilesAndStays) {
  interrupt("run", 6);
  const std::string id = run_id_of(read_file(folder_.path("run/config.toml")));
  ASSERT_TRUE(is_run_id(id)) << id;
  interrupt("run", 12, /*resume=*/true);
  finish("run", /*resume=*/true);
  EXPECT_EQ(run_id_of(read_file(folder_.path("run/config.toml"))), id);
  EXPECT_EQ(nlohmann::json::parse(last_file("run", "state.json")).at("run"), id);
  EXPECT_EQ(nlohmann::json::parse(first_line("run/metrics.jsonl")).at("run"), id);
  const record::Metrics metrics = record::parse_metrics(read_file(folder_.path("run/metrics.jsonl")), "m");
  EXPECT_EQ(metrics.run(), id);
  EXPECT_FALSE(metrics.steps.at(1).run);
}

TEST_F(RunFolder, ARunFromTheConfigOfAnotherHasItsOwnId) {
  finish("one");
  const std::string text = read_file(folder_.path("one/config.toml"));
  read_toml(text, "config.toml", &config_);
  finish("other");
  const std::string other = run_id_of(read_file(folder_.path("other/config.toml")));
  EXPECT_TRUE(is_run_id(other)) << other;
  EXPECT_NE(other, run_id_of(text));
}

TEST_F(RunFolder, SettingsWithoutAStepKeepTheirIdWhenResumed) {
  Recorder recorder;
  recorder.stop = true;
  RunRequest stopped = request("run");
  stopped.stop = &recorder.stop;
  EXPECT_THROW(run(stopped, recorder), Interrupted);
  const std::string id = run_id_of(read_file(folder_.path("run/config.toml")));
  finish("run", /*resume=*/true);
  EXPECT_EQ(run_id_of(read_file(folder_.path("run/config.toml"))), id);
}

TEST_F(RunFolder, CommentsInTheConfigStayUnlessSettingsChange) {
  interrupt("run", 6);
  const std::string path = folder_.path("run/config.toml");
  const std::string written = read_file(path);
  const std::string commented = written + "\n# The one with the new camera.\n";
  write_atomically(path, commented);
  interrupt("run", 12, /*resume=*/true);
  EXPECT_EQ(read_file(path), commented);
  RunRequest other = request("run", /*resume=*/true);
  other.given = {"keep"};
  other.config.keep = config_.keep + 1;
  Recorder recorder;
  run(other, recorder);
  Config stored;
  read_toml(read_file(path), path, &stored);
  EXPECT_EQ(stored.keep, config_.keep + 1);
  EXPECT_EQ(run_id_of(read_file(path)), run_id_of(written));
}

// With the bytes that a version without ids wrote.
TEST_F(RunFolder, ARunOfAVersionWithoutIdsContinues) {
  finish("whole");
  interrupt("run", 12);
  const std::string config = read_file(folder_.path("run/config.toml"));
  write_atomically(folder_.path("run/config.toml"), config.substr(config.find('\n') + 1));
  std::string metrics = read_file(folder_.path("run/metrics.jsonl"));
  const std::string key = "\"run\":\"" + run_id_of(config) + "\",";
  ASSERT_NE(metrics.find(key), std::string::npos);
  metrics.erase(metrics.find(key), key.size());
  write_atomically(folder_.path("run/metrics.jsonl"), metrics);
  CheckpointFolder checkpoints(folder_.path("run/checkpoints"));
  Checkpoint checkpoint = checkpoints.newest(nullptr);
  checkpoint.state.run.reset();
  checkpoint.state.metrics_bytes -= static_cast<int64_t>(key.size());
  checkpoints.write(checkpoint, 1);
  EXPECT_EQ(open_run(folder_.path("run"), "last").state.step, 12);
  finish("run", /*resume=*/true);
  expect_same_state("whole", "run");
}

TEST_F(RunFolder, LinksOutOfItAreNotFollowed) {
  interrupt("run", 6);
  for (const char* name : {"checkpoints", "metrics.jsonl", "summary.csv", "config.toml", "lock"}) {
    const std::string path = folder_.path(std::string("run/") + name);
    fs::rename(path, folder_.path(name));
    fs::create_symlink(folder_.path(name), path);
    const auto before = files("");
    expect_parts(message_of<OutputError>([&] { finish("run", /*resume=*/true); }),
                 {"'" + path + "'", "link out of the run's folder"});
    EXPECT_TRUE(files("") == before) << name;
    fs::remove(path);
    fs::rename(folder_.path(name), path);
  }
  fs::rename(folder_.path("run/checkpoints"), folder_.path("run/kept"));
  fs::create_symlink("kept", folder_.path("run/checkpoints"));
  EXPECT_EQ(finish("run", /*resume=*/true).steps, 20);
}

TEST_F(RunFolder, ALinkOutOfItSetDuringTrainingIsNotFollowed) {
  const std::string checkpoints = folder_.path("run/checkpoints");
  std::map<std::string, std::string> moved;
  Recorder recorder;
  recorder.after_step = [&](int64_t step) {
    if (step != 12) return;
    fs::rename(checkpoints, folder_.path("moved"));
    fs::create_symlink("../moved", checkpoints);
    moved = files("moved");
  };
  const RunRequest started = request("run");
  expect_parts(message_of<IoError>([&] { run(started, recorder); }),
               {"'" + checkpoints + "'", "link out of the run's folder"});
  EXPECT_TRUE(files("moved") == moved);
}

TEST_F(RunFolder, AFolderThatIsALinkItselfIsUsed) {
  fs::create_directory(folder_.path("disk"));
  fs::create_symlink(folder_.path("disk"), folder_.path("run"));
  EXPECT_EQ(finish("run").steps, 20);
}

TEST_F(RunFolder, FilesThatOnlyLookTemporaryStay) {
  interrupt("run", 6);
  for (const char* name : {"config.toml.tmp.mine", "writable.tmp.txt"}) {
    std::ofstream(folder_.path(std::string("run/") + name)) << "mine";
  }
  finish("run", /*resume=*/true);
  EXPECT_EQ(read_file(folder_.path("run/config.toml.tmp.mine")), "mine");
  EXPECT_EQ(read_file(folder_.path("run/writable.tmp.txt")), "mine");
}

}  // namespace
}  // namespace renorm::train
