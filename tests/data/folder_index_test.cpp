#include "data/folder_index.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> train_paths(const FolderIndex& index) {
  std::vector<std::string> paths;
  for (int64_t i = 0; i < index.train.size(); ++i) paths.push_back(index.train_path(i));
  return paths;
}

std::vector<std::string> val_paths(const FolderIndex& index) {
  std::vector<std::string> paths;
  for (int64_t i = 0; i < index.val.size(); ++i) paths.push_back(index.val_path(i));
  return paths;
}

using Paths = std::vector<std::string>;

class OpenFolder : public ::testing::Test {
 protected:
  // DIR/train and DIR/val of two classes.
  void write_two() const {
    for (const char* name : {"train/cat/b.jpg", "train/cat/a.PNG", "train/dog/x.jpeg", "val/dog/y.JPG"}) {
      folder.write(name, "");
    }
  }

  FolderIndex open(double fraction = 0.0) const { return open_folder(folder.path(), fraction); }

  template <typename Error>
  void expect_refused(const std::vector<std::string>& parts, double fraction = 0.0) const {
    expect_error<Error>([&] { open(fraction); }, parts);
  }

  TemporaryFolder folder;
};

TEST_F(OpenFolder, ClassesAndFilesAreSortedByBytes) {
  write_two();
  folder.write("train/Zebra/z.png", "");
  const FolderIndex index = open();
  EXPECT_EQ(index.classes, (Paths{"Zebra", "cat", "dog"}));
  EXPECT_EQ(index.train.labels(), (std::vector<int64_t>{0, 1, 1, 2}));
  EXPECT_EQ(train_paths(index), (Paths{folder.file("train/Zebra/z.png"), folder.file("train/cat/a.PNG"),
                                       folder.file("train/cat/b.jpg"), folder.file("train/dog/x.jpeg")}));
  EXPECT_EQ(val_paths(index), (Paths{folder.file("val/dog/y.JPG")}));
  EXPECT_EQ(index.val.labels(), (std::vector<int64_t>{2}));
  EXPECT_EQ(index.others, 0);
}

TEST_F(OpenFolder, DeeperFoldersBelongToTheClass) {
  write_two();
  folder.write("train/cat/deep/er/c.jpg", "");
  const FolderIndex index = open();
  EXPECT_EQ(index.train.name(2), "deep/er/c.jpg");
  EXPECT_EQ(index.train_path(2), folder.file("train/cat/deep/er/c.jpg"));
}

TEST_F(OpenFolder, HiddenIsPassedOverAndOthersAreCounted) {
  write_two();
  for (const char* name : {"train/cat/.c.jpg", "train/.hidden/a.jpg", ".git/a.jpg"}) folder.write(name, "");
  for (const char* name :
       {"train/cat/notes.txt", "train/cat/jpg", "train/list.csv", "train/cover.jpg", "val/dog/y.jpg.bak"}) {
    folder.write(name, "");
  }
  const FolderIndex index = open();
  EXPECT_EQ(index.train.size(), 3);
  EXPECT_EQ(index.classes.size(), 2U);
  EXPECT_EQ(index.others, 5);
}

TEST_F(OpenFolder, NamesAreBytesOfAnyKind) {
  const Paths names = {"new\nline", "<b>&amp;", "\xff\xfe", "\x1b[31m", "\xc3\xa4 space"};
  for (const std::string& name : names) {
    const std::string file = (fs::path(name) / name).string() + ".jpg";
    folder.write("train/" + file, "");
    folder.write("val/" + file, "");
  }
  const FolderIndex index = open();
  Paths sorted = names;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(index.classes, sorted);
  for (int64_t i = 0; i < index.train.size(); ++i) EXPECT_TRUE(fs::exists(index.train_path(i)));
  fs::remove(folder.file("train/new\nline/new\nline.jpg"));
  expect_refused<DataError>({"train/new\\x0aline': an empty class"});
}

TEST_F(OpenFolder, WhatIsNotThereIsNamed) {
  expect_refused<UsageError>({"'" + folder.path() + "': has no folder val"});
  expect_refused<DataError>({"'" + folder.path() + "': holds no folders of images"}, 0.5);
  fs::create_directories(folder.file("val/cat"));
  expect_refused<DataError>({"'" + folder.path() + "': has a folder val but no train"});
  write_two();
  expect_refused<DataError>({"'" + folder.file("val/cat") + "': an empty class"});
  fs::remove(folder.file("val/cat"));
  expect_refused<UsageError>({"has a folder val", "fraction"}, 0.5);
  fs::create_directories(folder.file("train/empty/inside"));
  folder.write("train/empty/readme.txt", "");
  expect_refused<DataError>({"'" + folder.file("train/empty") + "': an empty class"});
  fs::remove_all(folder.file("train/empty"));
  folder.write("val/fox/a.jpg", "");
  expect_refused<DataError>({"'" + folder.file("val/fox") + "': a class that is not in '", "/train'"});
  expect_error<MissingInputError>([&] { open_folder(folder.file("none"), 0.0); }, {"none: no such folder"});
  expect_error<MissingInputError>([&] { open_folder(folder.file("val/fox/a.jpg"), 0.0); },
                                  {"no such folder"});
  for (const double fraction : {-0.1, 1.0, std::nan("")}) {
    expect_refused<UsageError>({"at least 0 and below 1"}, fraction);
  }
}

// Root may read everything, so the test runs as another user.
TEST_F(OpenFolder, FolderThatMayNotBeReadIsNamed) {
  write_two();
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(folder.file("train/dog").c_str(), 0), 0);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::seteuid(kNobody), 0);
  }
  expect_refused<MissingInputError>(
      {"cannot list the folder '" + folder.file("train/dog") + "': Permission denied"});
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ASSERT_EQ(::chmod(folder.file("train/dog").c_str(), 0755), 0);
}

TEST_F(OpenFolder, LinksAreFollowedAndLoopsEnd) {
  write_two();
  const TemporaryFolder elsewhere;
  elsewhere.write("deep/far.jpg", "");
  elsewhere.write("one.png", "");
  fs::create_symlink(elsewhere.file("one.png"), folder.file("train/cat/link.jpg"));
  fs::create_directory_symlink(elsewhere.path(), folder.file("train/dog/out"));
  fs::create_directory_symlink(folder.path(), folder.file("train/dog/back"));
  fs::create_directory_symlink("..", folder.file("train/dog/up"));
  fs::create_directory_symlink(".", folder.file("train/dog/self"));
  fs::create_directory_symlink(elsewhere.path(), elsewhere.file("deep/round"));
  fs::create_directory_symlink(elsewhere.path(), folder.file("train/dog/twice"));
  const FolderIndex index = open();
  EXPECT_EQ(index.classes, (Paths{"cat", "dog"}));
  EXPECT_EQ(train_paths(index),
            (Paths{folder.file("train/cat/a.PNG"), folder.file("train/cat/b.jpg"),
                   folder.file("train/cat/link.jpg"), folder.file("train/dog/x.jpeg"),
                   folder.file("train/dog/out/one.png"), folder.file("train/dog/out/deep/far.jpg")}));
}

TEST_F(OpenFolder, LinksThatLeadNowhereOrBackAreCounted) {
  write_two();
  fs::create_symlink("none", folder.file("train/cat/dangling.jpg"));
  fs::create_symlink("loop.jpg", folder.file("train/cat/loop.jpg"));
  fs::create_directory_symlink("..", folder.file("train/parent"));
  ASSERT_EQ(::mkfifo(folder.file("train/cat/pipe.jpg").c_str(), 0600), 0);
  const FolderIndex index = open();
  EXPECT_EQ(index.classes, (Paths{"cat", "dog"}));
  EXPECT_EQ(index.train.size(), 3);
  EXPECT_EQ(index.others, 4);
}

TEST_F(OpenFolder, LinkThatLostItsFolderIsNoError) {
  write_two();
  {
    const TemporaryFolder elsewhere;
    elsewhere.write("a.jpg", "");
    fs::create_directory_symlink(elsewhere.path(), folder.file("train/dog/out"));
    EXPECT_EQ(open().train.size(), 4);
  }
  const FolderIndex index = open();
  EXPECT_EQ(index.train.size(), 3);
  EXPECT_EQ(index.others, 1);
}

TEST_F(OpenFolder, EveryChangeIsSeen) {
  write_two();
  EXPECT_EQ(open().train.size(), 3);
  folder.write("train/cat/new.jpg", "");
  EXPECT_EQ(train_paths(open())[2], folder.file("train/cat/new.jpg"));
  fs::rename(folder.file("train/cat/new.jpg"), folder.file("train/dog/new.jpg"));
  EXPECT_EQ(train_paths(open())[2], folder.file("train/dog/new.jpg"));
  folder.write("train/fox/deep/a.jpg", "");
  fs::remove(folder.file("train/dog/new.jpg"));
  EXPECT_EQ(open().classes, (Paths{"cat", "dog", "fox"}));
  fs::remove_all(folder.file("train/fox"));
  EXPECT_EQ(open().classes, (Paths{"cat", "dog"}));
  const TemporaryFolder other;
  other.write("cat/z.jpg", "");
  fs::rename(folder.file("train/cat"), other.file("old"));
  fs::rename(other.file("cat"), folder.file("train/cat"));
  EXPECT_EQ(open().train.name(0), "z.jpg");
}

TEST_F(OpenFolder, PathsStartWithTheFolderAsGiven) {
  write_two();
  const FolderIndex index = open_folder(folder.path() + "/train/..", 0.0);
  EXPECT_EQ(index.train_path(0), folder.path() + "/train/../train/cat/a.PNG");
}

// Two links to the next folder, twenty times: a million ways to one image.
TEST_F(OpenFolder, ManyWaysToOneFolderAreOne) {
  write_two();
  const TemporaryFolder maze;
  for (int i = 0; i < 20; ++i) {
    const std::string room = maze.file("room" + std::to_string(i));
    fs::create_directory(room);
    for (const char* door : {"/left", "/right"}) {
      fs::create_directory_symlink(maze.file("room" + std::to_string(i + 1)), room + door);
    }
  }
  maze.write("room20/a.jpg", "");
  fs::create_directory_symlink(maze.file("room0"), folder.file("train/maze"));
  EXPECT_EQ(open().train.size(), 4);
}

TEST_F(OpenFolder, SplitGoesByNameAlone) {
  for (int i = 0; i < 1000; ++i) folder.write("cat/" + std::to_string(i) + ".jpg", "");
  const Paths tenth = val_paths(open(0.1));
  EXPECT_NEAR(static_cast<double>(tenth.size()), 100.0, 30.0);
  const FolderIndex more = open(0.2);
  const Paths fifth = val_paths(more);
  EXPECT_NEAR(static_cast<double>(fifth.size()), 200.0, 40.0);
  EXPECT_EQ(more.train.size() + more.val.size(), 1000);
  EXPECT_TRUE(std::includes(fifth.begin(), fifth.end(), tenth.begin(), tenth.end()));
  folder.write("aardvark/1.jpg", "");
  for (int i = 0; i < 1000; i += 2) fs::remove(folder.file("cat/" + std::to_string(i) + ".jpg"));
  for (const std::string& path : val_paths(open(0.1))) {
    EXPECT_TRUE(std::binary_search(tenth.begin(), tenth.end(), path)) << path;
  }
}

TEST_F(OpenFolder, TrainFolderCanBeSplitToo) {
  folder.write("test/ignored.jpg", "");
  for (int i = 0; i < 50; ++i) folder.write("train/cat/" + std::to_string(i) + ".jpg", "");
  const FolderIndex index = open(0.5);
  EXPECT_EQ(index.classes, (Paths{"cat"}));
  EXPECT_EQ(index.train.size() + index.val.size(), 50);
  EXPECT_TRUE(fs::exists(index.val_path(0)));
}

TEST_F(OpenFolder, EveryClassKeepsAnImageForTraining) {
  for (int i = 0; i < 30; ++i) folder.write("class" + std::to_string(i) + "/only.jpg", "");
  folder.write("more/a.jpg", "");
  folder.write("more/b.jpg", "");
  const FolderIndex index = open(0.999);
  EXPECT_EQ(index.train.size(), 31);
  EXPECT_EQ(index.val.size(), 1);
  expect_refused<DataError>({"none of its 32 images", "1e-09"}, 1e-9);
}

// Pinned, so that no split changes with a new version.
TEST(ValHash, IsPinned) {
  EXPECT_DOUBLE_EQ(val_hash(""), 0.9576734252420561);
  EXPECT_DOUBLE_EQ(val_hash("cat/1.jpg"), 0.24737290083364938);
  EXPECT_DOUBLE_EQ(val_hash("cat/2.jpg"), 0.338711882293083);
  EXPECT_DOUBLE_EQ(val_hash("\xff"), 0.30929118745757567);
}

}  // namespace
}  // namespace renorm::data::testing
