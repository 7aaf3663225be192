#include "data/folder_cache.h"

#include <chrono>
#include <thread>

#include "base/checksum.h"
#include "base/files.h"
#include "data/folder_index.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

namespace fs = std::filesystem;

class OpenFolderCached : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"train/cat/b.jpg", "train/cat/a.PNG", "train/dog/x.jpeg", "val/dog/y.JPG"}) {
      folder.write(name, "");
    }
  }

  FolderIndex open_cached(int64_t settle_ns = 0) const {
    FolderOptions options;
    options.cache = cache.path();
    options.settle_ns = settle_ns;
    return open_folder(folder.path(), options);
  }
  std::string cache_file() const {
    return folder_cache_file(fs::canonical(folder.path()).string(), cache.path());
  }
  // Longer than a tick of the file system's clock.
  static void wait() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }

  void expect_same(const FolderIndex& a) const {
    const FolderIndex b = open_folder(folder.path(), {});
    EXPECT_EQ(a.classes, b.classes);
    ASSERT_EQ(a.train.labels(), b.train.labels());
    ASSERT_EQ(a.val.labels(), b.val.labels());
    for (int64_t i = 0; i < b.train.size(); ++i) EXPECT_EQ(a.train_path(i), b.train_path(i));
    for (int64_t i = 0; i < b.val.size(); ++i) EXPECT_EQ(a.val_path(i), b.val_path(i));
    EXPECT_EQ(a.others, b.others);
  }

  TemporaryFolder folder;
  TemporaryFolder cache;
};

TEST_F(OpenFolderCached, UnchangedFoldersAreNotRead) {
  EXPECT_EQ(open_cached().listed, 6);
  const FolderIndex again = open_cached();
  EXPECT_EQ(again.listed, 0);
  expect_same(again);
  EXPECT_EQ(list_folder(cache.path()).size(), 1U);
}

TEST_F(OpenFolderCached, ChangedFoldersAreReadAgain) {
  open_cached();
  wait();
  folder.write("train/cat/new.jpg", "");
  FolderIndex index = open_cached();
  EXPECT_EQ(index.listed, 1);
  expect_same(index);
  wait();
  fs::rename(folder.file("train/cat/new.jpg"), folder.file("train/dog/new.jpg"));
  index = open_cached();
  EXPECT_EQ(index.listed, 2);
  expect_same(index);
  wait();
  folder.write("train/fox/deep/a.jpg", "");
  fs::remove(folder.file("train/dog/new.jpg"));
  index = open_cached();
  EXPECT_EQ(index.listed, 4);
  expect_same(index);
  wait();
  fs::remove_all(folder.file("train/fox"));
  index = open_cached();
  EXPECT_EQ(index.listed, 1);
  expect_same(index);
  EXPECT_EQ(open_cached().listed, 0);
}

TEST_F(OpenFolderCached, FolderInPlaceOfAnotherIsRead) {
  open_cached();
  wait();
  const TemporaryFolder other;
  other.write("cat/z.jpg", "");
  fs::rename(folder.file("train/cat"), other.file("old"));
  fs::rename(other.file("cat"), folder.file("train/cat"));
  const FolderIndex index = open_cached();
  EXPECT_EQ(index.train.name(0), "z.jpg");
  expect_same(index);
}

// A change in the same tick of the clock would not show.
TEST_F(OpenFolderCached, FoldersThatJustChangedAreNotTrusted) {
  constexpr int64_t kLong = int64_t{3600} * 1'000'000'000;
  open_cached(kLong);
  EXPECT_EQ(open_cached(kLong).listed, 6);
  EXPECT_EQ(open_cached(0).listed, 6);
  EXPECT_EQ(open_cached(0).listed, 0);
}

TEST_F(OpenFolderCached, LinkThatLostItsFolderIsNoError) {
  {
    const TemporaryFolder elsewhere;
    elsewhere.write("a.jpg", "");
    fs::create_directory_symlink(elsewhere.path(), folder.file("train/dog/out"));
    EXPECT_EQ(open_cached().train.size(), 4);
  }
  const FolderIndex index = open_cached();
  EXPECT_EQ(index.train.size(), 3);
  EXPECT_EQ(index.others, 1);
}

TEST_F(OpenFolderCached, ContentIsWhatTheFileSays) {
  open_cached();
  std::string text = read_file(cache_file());
  text.resize(text.size() - 64);
  text.replace(text.find("b.jpg"), 5, "c.jpg");
  write_atomically(cache_file(), text + sha256(text));
  EXPECT_EQ(open_cached().train.name(1), "c.jpg");
}

TEST_F(OpenFolderCached, DamagedFileIsMadeAnew) {
  open_cached();
  const std::string good = read_file(cache_file());
  std::vector<std::string> damaged = {"", "x", good.substr(0, 70), good.substr(0, good.size() - 1),
                                      good + "x"};
  for (const size_t place : {size_t{0}, size_t{15}, good.size() / 2, good.size() - 1}) {
    damaged.push_back(good);
    damaged.back()[place] ^= 1;
  }
  for (const std::string& bytes : damaged) {
    write_atomically(cache_file(), bytes);
    const FolderIndex index = open_cached();
    EXPECT_EQ(index.listed, 6);
    expect_same(index);
    EXPECT_EQ(read_file(cache_file()), good);
  }
}

TEST_F(OpenFolderCached, ThatCannotBeWrittenIsNoError) {
  FolderOptions options;
  cache.write("a-file", "");
  for (const std::string& place : {cache.file("a-file/below"), std::string("/proc/no-such-folder")}) {
    options.cache = place;
    expect_same(open_folder(folder.path(), options));
  }
}

TEST_F(OpenFolderCached, OtherPathsToTheFolderShareIt) {
  open_cached();
  FolderOptions options;
  options.cache = cache.path();
  const FolderIndex index = open_folder(folder.path() + "/train/..", options);
  EXPECT_EQ(index.listed, 0);
  EXPECT_EQ(index.train_path(0), folder.path() + "/train/../train/cat/a.PNG");
}

// With the right checksum, but names that no folder listing has.
TEST(FolderCache, NamesThatLeadOutAreRefused) {
  const auto decoded = [](const Names& folders, const Names& images) {
    FolderListings listings;
    listings[""] = {1, 2, 3, folders, images};
    return decode_folder_cache("/root", encode_folder_cache("/root", listings)).has_value();
  };
  const auto names = [](const std::vector<std::string>& list) {
    Names joined_names;
    for (const std::string& name : list) joined_names.append(name).push_back('\0');
    return joined_names;
  };
  EXPECT_TRUE(decoded(names({"a", "b"}), names({"a.jpg", "b.png"})));
  EXPECT_TRUE(decoded("", ""));
  EXPECT_FALSE(decoded(names({".."}), ""));
  EXPECT_FALSE(decoded(names({"a/b"}), ""));
  EXPECT_FALSE(decoded(names({"b", "a"}), ""));
  EXPECT_FALSE(decoded(names({"a", "a"}), ""));
  EXPECT_FALSE(decoded("", names({"a.txt"})));
  EXPECT_FALSE(decoded("", names({"x/a.jpg"})));
  EXPECT_FALSE(decode_folder_cache("/other", encode_folder_cache("/root", {})).has_value());
}

TEST(FolderCache, KeepsEveryValue) {
  FolderListings listings;
  listings[""] = {~uint64_t{0}, -5, 7, std::string("a\0", 2), ""};
  listings["a"] = {1, 1'700'000'000'123'456'789, 0, "", std::string("x\n.jpg\0", 7)};
  const std::string text = encode_folder_cache("/root", listings);
  const auto decoded = decode_folder_cache("/root", text);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->size(), 2U);
  EXPECT_EQ(encode_folder_cache("/root", *decoded), text);
  EXPECT_EQ(decoded->at("a").changed_ns, 1'700'000'000'123'456'789);
  EXPECT_EQ(decoded->at("").inode, ~uint64_t{0});
}

}  // namespace
}  // namespace renorm::data::testing
