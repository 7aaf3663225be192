#include "train/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/errors.h"

namespace renorm::train {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void put(const fs::path& path, const std::string& bytes) {
  fs::remove_all(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

class CheckpointFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    base_ = fs::path(::testing::TempDir()) / ("renorm-" + name + "-" + std::to_string(getpid()));
    fs::remove_all(base_);
    fs::create_directories(base_);
    path_ = base_ / "checkpoints";
  }
  void TearDown() override { fs::remove_all(base_); }

  CheckpointFolder folder() const { return CheckpointFolder(path_); }

  static Checkpoint checkpoint(int64_t step, int64_t best = -1) {
    Checkpoint checkpoint;
    checkpoint.state.step = step;
    checkpoint.state.config = resolved(Config(), 1'000);
    checkpoint.state.data = {"strokes", {"a", "b"}, 1, 8, 8, {0.5}, {0.5}, 1.0, ""};
    checkpoint.state.best_step = best;
    checkpoint.state.best_accuracy = best < 0 ? -1.0 : 50.0;
    checkpoint.tensors["model.safetensors"] = "model of " + std::to_string(step) + std::string("\0\n\xff", 3);
    checkpoint.tensors["average.safetensors"] = "average";
    checkpoint.tensors["optimizer.safetensors"] = "";
    return checkpoint;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::string refusal_of_read(int64_t step) const {
    try {
      folder().read(step);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }

  fs::path base_;
  fs::path path_;
};

const std::vector<std::string> kFiles = {"model.safetensors", "average.safetensors", "optimizer.safetensors",
                                         "state.json", "SHA256SUMS"};

TEST_F(CheckpointFolderTest, ReadsBackWhatItWrote) {
  folder().write(checkpoint(500, 500), 3);
  const Checkpoint read = folder().read(500);
  EXPECT_EQ(read.tensors, checkpoint(500).tensors);
  EXPECT_EQ(to_json(read.state), to_json(checkpoint(500, 500).state));
  EXPECT_EQ(names(), (std::vector<std::string>{"best", "last", "step-000000500"}));
  EXPECT_EQ(fs::read_symlink(path_ / "last"), "step-000000500");
  EXPECT_EQ(fs::read_symlink(path_ / "best"), "step-000000500");
  EXPECT_EQ(folder().path_of(500), (path_ / "step-000000500").string());
}

TEST_F(CheckpointFolderTest, IsAcceptedBySha256sum) {
  if (std::system("sha256sum --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "there is no sha256sum here";
  folder().write(checkpoint(5), 3);
  const std::string command = "cd '" + folder().path_of(5) + "' && sha256sum --strict --status -c SHA256SUMS";
  EXPECT_EQ(std::system(command.c_str()), 0);
  put(path_ / "step-000000005" / "model.safetensors", "another");
  EXPECT_NE(std::system(command.c_str()), 0);
}

TEST_F(CheckpointFolderTest, KeepsTheNewestAndTheBest) {
  for (int64_t step = 1; step <= 6; ++step) folder().write(checkpoint(step, step >= 2 ? 2 : 1), 2);
  EXPECT_EQ(folder().steps(), (std::vector<int64_t>{2, 5, 6}));
  EXPECT_EQ(fs::read_symlink(path_ / "best"), "step-000000002");
  EXPECT_EQ(fs::read_symlink(path_ / "last"), "step-000000006");
  folder().write(checkpoint(7, 7), 1);
  EXPECT_EQ(folder().steps(), (std::vector<int64_t>{7}));
  EXPECT_EQ(names(), (std::vector<std::string>{"best", "last", "step-000000007"}));
}

TEST_F(CheckpointFolderTest, HasNoLinkToABestThatIsGone) {
  folder().write(checkpoint(1, 1), 3);
  fs::remove_all(path_ / "step-000000001");
  folder().write(checkpoint(2, 1), 3);
  EXPECT_EQ(names(), (std::vector<std::string>{"last", "step-000000002"}));
  EXPECT_THROW(folder().find("best"), MissingInputError);
}

TEST_F(CheckpointFolderTest, SortsStepsAsNumbers) {
  for (const int64_t step :
       {int64_t{999'999'999}, int64_t{1'000'000'000}, int64_t{2}, int64_t{12'345'678'901}}) {
    folder().write(checkpoint(step), 10);
  }
  EXPECT_EQ(folder().steps(), (std::vector<int64_t>{2, 999'999'999, 1'000'000'000, 12'345'678'901}));
  EXPECT_EQ(folder().newest(nullptr).state.step, 12'345'678'901);
}

TEST_F(CheckpointFolderTest, IgnoresOtherNames) {
  folder().write(checkpoint(2), 3);
  for (const char* name :
       {"step-3", "step-", "step-00000000x", "step--00000004", "notes", "step-000000005 "}) {
    fs::create_directory(path_ / name);
  }
  put(path_ / "step-000000009", "a file");
  EXPECT_EQ(folder().steps(), (std::vector<int64_t>{2}));
}

TEST_F(CheckpointFolderTest, ReplacesTheSameStep) {
  folder().write(checkpoint(4), 3);
  put(path_ / "step-000000004" / "model.safetensors", "torn");
  folder().write(checkpoint(4), 3);
  EXPECT_EQ(folder().read(4).tensors, checkpoint(4).tensors);
  EXPECT_EQ(names(), (std::vector<std::string>{"last", "step-000000004"}));
}

TEST_F(CheckpointFolderTest, NeverDeletesWhatItJustWroteNorWhatIsNewer) {
  for (const int64_t step : {2, 4, 6}) folder().write(checkpoint(step), 3);
  folder().write(checkpoint(5), 1);  // a run that went back because step 6 was torn
  EXPECT_EQ(folder().steps(), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(fs::read_symlink(path_ / "last"), "step-000000005");
}

TEST_F(CheckpointFolderTest, RefusesEveryTruncationAndFallsBack) {
  folder().write(checkpoint(1), 3);
  folder().write(checkpoint(2), 3);
  for (const std::string& name : kFiles) {
    const fs::path path = path_ / "step-000000002" / name;
    const std::string bytes = bytes_of(path);
    const size_t stride = bytes.size() / 40 + 1;
    for (size_t length = 0; length < bytes.size(); length += stride) {
      put(path, bytes.substr(0, length));
      ASSERT_NE(refusal_of_read(2).find(name), std::string::npos)
          << name << " of " << length << ": " << refusal_of_read(2);
      std::vector<std::string> refused;
      ASSERT_EQ(folder().newest(&refused).state.step, 1);
      ASSERT_EQ(refused, std::vector<std::string>{refusal_of_read(2)});
    }
    put(path, bytes);
  }
  EXPECT_EQ(refusal_of_read(2), "");
}

TEST_F(CheckpointFolderTest, RefusesEveryFlippedBit) {
  folder().write(checkpoint(2), 3);
  for (const std::string& name : kFiles) {
    const fs::path path = path_ / "step-000000002" / name;
    const std::string bytes = bytes_of(path);
    const size_t stride = name == "SHA256SUMS" ? 1 : bytes.size() / 40 + 1;
    for (size_t at = 0; at < bytes.size(); at += stride) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << (at % 8)));
      put(path, flipped);
      ASSERT_NE(refusal_of_read(2).find(name), std::string::npos)
          << name << " at " << at << ": " << refusal_of_read(2);
    }
    put(path, bytes);
  }
}

TEST_F(CheckpointFolderTest, RefusesFilesThatAreMissingTooManyOrNotFiles) {
  folder().write(checkpoint(2), 3);
  const fs::path inside = path_ / "step-000000002";
  for (const std::string& name : kFiles) {
    const std::string bytes = bytes_of(inside / name);
    fs::remove(inside / name);
    EXPECT_NE(refusal_of_read(2).find(name), std::string::npos) << name;
    fs::create_directory(inside / name);
    EXPECT_NE(refusal_of_read(2).find(name), std::string::npos) << name;
    put(inside / name, bytes);
  }
  put(inside / "more", "");
  EXPECT_EQ(refusal_of_read(2), (inside / "more").string() + ": not listed in SHA256SUMS");
  EXPECT_EQ(refusal_of_read(3), (path_ / "step-000000003").string() + ": there is no such checkpoint");
}

TEST_F(CheckpointFolderTest, RefusesListsThatLeadOutOfTheFolder) {
  folder().write(checkpoint(2), 3);
  const fs::path sums = path_ / "step-000000002" / "SHA256SUMS";
  const std::string bytes = bytes_of(sums);
  const std::string digest(64, '0');
  for (const char* name : {"../x", "/etc/passwd", "", ".", "..", "a b", "state.json", "a\tb"}) {
    put(sums, bytes + digest + "  " + name + "\n");
    EXPECT_NE(refusal_of_read(2).find("SHA256SUMS"), std::string::npos) << name;
  }
}

TEST_F(CheckpointFolderTest, RefusesTheStateOfAnotherStep) {
  folder().write(checkpoint(2), 3);
  fs::rename(path_ / "step-000000002", path_ / "step-000000003");
  EXPECT_NE(refusal_of_read(3).find("state.json: of step 2"), std::string::npos) << refusal_of_read(3);
}

TEST_F(CheckpointFolderTest, FindsCheckpointsByName) {
  for (const int64_t step : {100, 200, 300}) folder().write(checkpoint(step, 200), 5);
  EXPECT_EQ(folder().find("last"), 300);
  EXPECT_EQ(folder().find("best"), 200);
  EXPECT_EQ(folder().find("step-100"), 100);
  EXPECT_EQ(folder().find("step-000000100"), 100);
  EXPECT_EQ(folder().find("300"), 300);
  for (const char* name :
       {"", "lst", "step-", "step-7", "7", "-1", "100 ", "step-step-100", "99999999999999999999"}) {
    EXPECT_THROW(folder().find(name), MissingInputError) << name;
  }
  put(path_ / "step-000000300" / "model.safetensors", "torn");
  EXPECT_EQ(folder().find("last"), 200);
  for (const char* name : {"last", "best"}) {
    std::vector<std::string> refused;
    EXPECT_EQ(folder().find(name, &refused), 200);
    EXPECT_EQ(refused, std::vector<std::string>{refusal_of_read(300)});
  }
}

TEST_F(CheckpointFolderTest, SaysThatThereIsNoneAndWhy) {
  EXPECT_TRUE(folder().steps().empty());
  EXPECT_THROW(folder().newest(nullptr), MissingInputError);
  EXPECT_THROW(folder().find("last"), MissingInputError);
  folder().write(checkpoint(1), 3);
  fs::remove(path_ / "step-000000001" / "model.safetensors");
  try {
    folder().newest(nullptr);
    FAIL() << "took a checkpoint without its model";
  } catch (const MissingInputError& error) {
    EXPECT_NE(std::string(error.what()).find("model.safetensors"), std::string::npos) << error.what();
  }
}

TEST_F(CheckpointFolderTest, CleansWhatKilledProcessesLeft) {
  folder().write(checkpoint(1), 3);
  for (const char* name : {".tmp-step-000000002-1", ".old-step-000000000-1", ".old-step-000000001-1.2"}) {
    fs::create_directory(path_ / name);
    put(path_ / name / "model.safetensors", "x");
  }
  fs::create_directory(path_ / ".tmp-step-000000003-1");
  fs::create_symlink("step-000000001", path_ / ".tmp-last-1");
  put(path_ / "notes", "mine");
  folder().clean();
  EXPECT_EQ(names(), (std::vector<std::string>{"last", "notes", "step-000000001"}));
}

TEST_F(CheckpointFolderTest, DeletesNothingThatItDidNotWrite) {
  const std::vector<fs::path> foreign = {
      ".old-photos/cat.jpg",           ".tmp-/a",
      ".tmp-step-000000001-1/notes",   ".tmp-step-1-1/model.safetensors",
      ".old-step-000000001-x/a",       ".tmp-last-1/a",
      "step-000000001/cat.jpg",        "step-000000002/model.safetensors",
      "step-000000003/SHA256SUMS/cat", ".old-step-000000009-1/model.safetensors/cat"};
  for (const fs::path& file : foreign) {
    fs::create_directories((path_ / file).parent_path());
    put(path_ / file, "mine");
  }
  fs::create_directory_symlink(base_, path_ / ".tmp-step-000000005-1");
  fs::create_directory_symlink(base_, path_ / "step-000000004");
  for (const int64_t step : {10, 20, 30}) folder().write(checkpoint(step), 1);
  for (const fs::path& file : foreign) EXPECT_EQ(bytes_of(path_ / file), "mine") << file;
  EXPECT_TRUE(fs::is_symlink(path_ / ".tmp-step-000000005-1"));
  EXPECT_TRUE(fs::is_symlink(path_ / "step-000000004"));
  EXPECT_FALSE(fs::exists(path_ / "step-000000020"));
}

TEST_F(CheckpointFolderTest, TakesNoNameFromSomethingElse) {
  folder().write(checkpoint(1), 3);
  fs::create_directory(path_ / "step-000000002");
  put(path_ / "step-000000002" / "notes", "mine");
  put(path_ / "step-000000003", "mine");
  for (const int64_t step : {2, 3}) {
    EXPECT_THROW(folder().check_free_after(step - 1), OutputError);
    EXPECT_THROW(folder().write(checkpoint(step), 3), IoError);
  }
  EXPECT_NO_THROW(folder().check_free_after(3));
  EXPECT_EQ(bytes_of(path_ / "step-000000002" / "notes"), "mine");
  EXPECT_EQ(bytes_of(path_ / "step-000000003"), "mine");
  EXPECT_EQ(names(),
            (std::vector<std::string>{"last", "step-000000001", "step-000000002", "step-000000003"}));
}

TEST_F(CheckpointFolderTest, ReportsADeletedNewestCheckpoint) {
  for (const int64_t step : {1, 2}) folder().write(checkpoint(step), 3);
  fs::remove_all(path_ / "step-000000002");
  std::vector<std::string> refused;
  EXPECT_EQ(folder().newest(&refused).state.step, 1);
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_NE(refused[0].find("step-000000002' is missing"), std::string::npos) << refused[0];
  fs::remove_all(path_ / "step-000000001");
  EXPECT_THROW(folder().newest(nullptr), MissingInputError);
}

TEST_F(CheckpointFolderTest, KeepsACheckpointToWhichAFileWasAdded) {
  folder().write(checkpoint(1), 1);
  put(path_ / "step-000000001" / "notes", "mine");
  folder().write(checkpoint(2), 1);
  EXPECT_EQ(bytes_of(path_ / "step-000000001" / "notes"), "mine");
  folder().write(checkpoint(1), 1);  // a run that started anew
  EXPECT_EQ(folder().read(1).tensors, checkpoint(1).tensors);
  std::vector<std::string> kept;
  for (const auto& entry : fs::recursive_directory_iterator(path_)) {
    if (entry.path().filename() == "notes") kept.push_back(bytes_of(entry.path()));
  }
  EXPECT_EQ(kept, std::vector<std::string>{"mine"});
}

TEST_F(CheckpointFolderTest, ReplacesNoLastAndNoBestThatIsNotALink) {
  fs::create_directories(path_ / "last");
  put(path_ / "last" / "model.safetensors", "mine");
  put(path_ / "best", "mine");
  folder().write(checkpoint(1, 1), 1);
  folder().write(checkpoint(2, 1), 1);
  fs::remove_all(path_ / "step-000000001");
  folder().write(checkpoint(3, 1), 1);
  EXPECT_EQ(bytes_of(path_ / "last" / "model.safetensors"), "mine");
  EXPECT_EQ(bytes_of(path_ / "best"), "mine");
  EXPECT_EQ(folder().find("last"), 3);
}

// In a container every process may have the same number.
TEST_F(CheckpointFolderTest, SettlesWhatAKilledProcessLeftUndone) {
  for (const int64_t step : {10, 20, 30}) folder().write(checkpoint(step, step), 3);
  fs::remove(path_ / "last");
  fs::create_symlink("step-000000020", path_ / "last");
  fs::remove(path_ / "best");
  folder().settle(checkpoint(30, 20).state, 1);
  EXPECT_EQ(fs::read_symlink(path_ / "last"), "step-000000030");
  EXPECT_EQ(fs::read_symlink(path_ / "best"), "step-000000020");
  EXPECT_EQ(folder().steps(), (std::vector<int64_t>{20, 30}));
}

TEST_F(CheckpointFolderTest, WritesOverTheLeftoversOfItsOwnNumber) {
  const std::string number = std::to_string(getpid());
  for (const std::string name : {".tmp-step-000000002-", ".old-step-000000001-"}) {
    for (const std::string end : {"", ".0"}) {
      fs::create_directories(path_ / (name + number + end));
      put(path_ / (name + number + end) / "state.json", "torn");
    }
  }
  fs::create_symlink("step-000000001", path_ / (".tmp-last-" + number + ".0"));
  folder().write(checkpoint(1), 1);
  folder().write(checkpoint(2), 1);
  EXPECT_EQ(folder().read(2).tensors, checkpoint(2).tensors);
  EXPECT_EQ(names(), (std::vector<std::string>{"last", "step-000000002"}));
}

TEST_F(CheckpointFolderTest, ThrowsIoErrorWhereNothingCanBeMade) {
  put(base_ / "file", "x");
  CheckpointFolder under_file(base_ / "file" / "checkpoints");
  try {
    under_file.write(checkpoint(1), 1);
    FAIL() << "wrote a folder inside a file";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("file/checkpoints"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("Not a directory"), std::string::npos) << error.what();
  }
}

TEST_F(CheckpointFolderTest, LeavesTheOldOnesWhenAWriteFailsHalfWay) {
  folder().write(checkpoint(1), 1);
  Checkpoint next = checkpoint(2);
  next.tensors["sub/file"] = "cannot be written: there is no such folder";
  EXPECT_THROW(folder().write(next, 1), IoError);
  EXPECT_EQ(names(), (std::vector<std::string>{"last", "step-000000001"}));
  EXPECT_EQ(folder().newest(nullptr).state.step, 1);
}

TEST_F(CheckpointFolderTest, ChangesNothingMoreOnceTheFolderIsNotItsOwn) {
  folder().write(checkpoint(1), 1);
  for (int fails_at = 1; fails_at <= 3; ++fails_at) {
    int calls = 0;
    const auto check = [&] {
      if (++calls == fails_at) throw IoError("taken");
    };
    EXPECT_THROW(folder().write(checkpoint(2, 2), 1, check), IoError);
    EXPECT_EQ(calls, fails_at);
    std::vector<std::string> left = {"last", "step-000000001"};
    if (fails_at == 3) left.push_back("step-000000002");  // complete, but links and older ones are as before
    EXPECT_EQ(names(), left);
    EXPECT_EQ(fs::read_symlink(path_ / "last"), "step-000000001");
  }
}

}  // namespace
}  // namespace renorm::train
