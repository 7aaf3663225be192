#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <future>

#include "base/checksum.h"
#include "base/files.h"
#include "data/strokes.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

class StrokesCache : public ::testing::Test {
 protected:
  // Returns the data and counts whether they had to be drawn.
  ByteDataset open(const std::string& path) {
    bool drawn = false;
    ByteDataset data = cached_strokes(options, path, 2, [&](int64_t, int64_t) { drawn = true; });
    draws += drawn ? 1 : 0;
    return data;
  }

  void expect_right(const ByteDataset& data) const {
    EXPECT_EQ(data.train.pixels, expected.train.pixels);
    EXPECT_EQ(data.test.pixels, expected.test.pixels);
    EXPECT_EQ(data.train.labels, expected.train.labels);
    EXPECT_EQ(data.classes, expected.classes);
  }

  // Opens with these bytes as the cache file: they must be refused and replaced.
  void expect_redrawn(const std::string& bytes) {
    write_atomically(file, bytes);
    const int before = draws;
    expect_right(open(folder.path()));
    EXPECT_EQ(draws, before + 1);
    EXPECT_EQ(read_file(file), good);
  }

  void SetUp() override {
    expect_right(open(folder.path()));
    ASSERT_EQ(draws, 1);
    good = read_file(file);
  }

  const StrokesOptions options = parse_strokes("classes=6,train=9,test=3");
  const ByteDataset expected = generate_strokes(options, 1, [](int64_t, int64_t) {});
  TemporaryFolder folder;
  const std::string file = strokes_cache_file(options, folder.path());
  std::string good;
  int draws = 0;
};

TEST_F(StrokesCache, SecondOpenReadsTheFile) {
  expect_right(open(folder.path()));
  EXPECT_EQ(draws, 1);
  EXPECT_EQ(list_folder(folder.path()).size(), 1U);
}

// Pixels that the generator would not draw, with the right checksum: they can only come from the file.
TEST_F(StrokesCache, ContentComesFromTheFile) {
  std::string bytes = good.substr(0, good.size() - 64);
  bytes.back() = static_cast<char>(~bytes.back());
  write_atomically(file, bytes + sha256(bytes));
  EXPECT_NE(open(folder.path()).test.pixels, expected.test.pixels);
  EXPECT_EQ(draws, 1);
}

TEST_F(StrokesCache, EverySpecHasItsFile) {
  for (const char* other : {"classes=6,train=9,test=3,noise=0.2", "classes=6,train=9,test=3,seed=2",
                            "classes=6,train=9,test=3,jitter=0.99", "classes=7,train=9,test=3"}) {
    EXPECT_NE(strokes_cache_file(parse_strokes(other), folder.path()), file);
  }
}

TEST_F(StrokesCache, DamagedFileIsReplaced) {
  expect_redrawn("");
  expect_redrawn(good.substr(0, 10));
  expect_redrawn(good.substr(0, good.size() - 1));
  expect_redrawn(good + "x");
  for (const size_t place : {size_t{0}, size_t{20}, good.size() / 2, good.size() - 65, good.size() - 1}) {
    std::string altered = good;
    altered[place] ^= 1;
    expect_redrawn(altered);
  }
}

TEST_F(StrokesCache, FileOfAnotherVersionOrSpecIsReplaced) {
  std::string body = good.substr(0, good.size() - 64);
  const size_t version = std::string("renorm strokes ").size();
  body[version] = '0';
  expect_redrawn(body + sha256(body));
  body = good.substr(0, good.size() - 64);
  body[body.find("seed=1") + 5] = '2';
  expect_redrawn(body + sha256(body));
}

TEST_F(StrokesCache, CacheThatCannotBeWrittenIsNoError) {
  folder.write("a-file", "");
  expect_right(open(folder.file("a-file/below")));
  expect_right(open("/proc/no-such-folder"));
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  expect_right(open(folder.path()));
  EXPECT_EQ(draws, 4);
}

// In a folder to which others can write, the file may be theirs: it is neither read nor replaced.
TEST_F(StrokesCache, FolderThatOthersCanWriteToIsNotUsed) {
  std::string bytes = good.substr(0, good.size() - 64);
  bytes.back() = static_cast<char>(~bytes.back());
  const std::string forged = bytes + sha256(bytes);
  write_atomically(file, forged);
  for (const mode_t mode : {mode_t{0777}, mode_t{0770}, mode_t{0702}}) {
    ASSERT_EQ(chmod(folder.path().c_str(), mode), 0);
    const int before = draws;
    expect_right(open(folder.path()));
    EXPECT_EQ(draws, before + 1);
    EXPECT_EQ(read_file(file), forged);
  }
  ASSERT_EQ(chmod(folder.path().c_str(), 0700), 0);
  EXPECT_NE(open(folder.path()).test.pixels, expected.test.pixels);
}

TEST_F(StrokesCache, LinkedFolderIsNotUsed) {
  const TemporaryFolder other;
  const std::string link = other.file("link");
  std::filesystem::create_directory_symlink(folder.path(), link);
  expect_right(open(link));
  EXPECT_EQ(draws, 2);
}

TEST_F(StrokesCache, LinkedFileIsNeitherReadNorWrittenThrough) {
  const TemporaryFolder other;
  for (const std::string& target : {good, std::string("precious")}) {
    const std::string outside = other.file("outside");
    write_atomically(outside, target);
    std::filesystem::remove(file);
    std::filesystem::create_symlink(outside, file);
    const int before = draws;
    expect_right(open(folder.path()));
    EXPECT_EQ(draws, before + 1);
    EXPECT_EQ(read_file(outside), target);
    EXPECT_FALSE(std::filesystem::is_symlink(file));
    EXPECT_EQ(read_file(file), good);
  }
}

TEST_F(StrokesCache, FolderIsMade) {
  expect_right(open(folder.file("new/inner")));
  expect_right(open(folder.file("new/inner")));
  EXPECT_EQ(draws, 2);
}

TEST_F(StrokesCache, ThreadsThatStartAtOnceAllGetTheData) {
  for (int round = 0; round < 5; ++round) {
    std::filesystem::remove(file);
    std::vector<std::future<ByteDataset>> all;
    all.reserve(4);
    for (int i = 0; i < 4; ++i) {
      all.push_back(std::async(std::launch::async, [this] {
        return cached_strokes(options, folder.path(), 2, [](int64_t, int64_t) {});
      }));
    }
    for (std::future<ByteDataset>& one : all) expect_right(one.get());
    EXPECT_EQ(read_file(file), good);
    EXPECT_EQ(list_folder(folder.path()).size(), 1U);
  }
}

TEST_F(StrokesCache, ProcessesThatStartAtOnceAllGetTheData) {
  for (int round = 0; round < 5; ++round) {
    std::filesystem::remove(file);
    std::vector<pid_t> children;
    for (int i = 0; i < 4; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        const ByteDataset data = cached_strokes(options, folder.path(), 1, [](int64_t, int64_t) {});
        const bool right =
            data.train.pixels == expected.train.pixels && data.test.pixels == expected.test.pixels;
        _exit(right ? 0 : 1);
      }
      ASSERT_GT(child, 0);
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(read_file(file), good);
    EXPECT_EQ(list_folder(folder.path()).size(), 1U);
  }
}

}  // namespace
}  // namespace renorm::data::testing
