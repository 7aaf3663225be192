#include "base/files.h"

#include <sys/stat.h>

#include <cstdlib>
#include <thread>

#include "base/errors.h"
#include "temporary_folder.h"

namespace renorm::testing {
namespace {

namespace fs = std::filesystem;

using Files = TemporaryFolder;
using Names = std::vector<std::string>;

bool obeys_modes() { return geteuid() != 0; }  // root may do everything

TEST_F(Files, ReadsAllBytes) {
  const std::string bytes = std::string("a\0b\n", 4) + std::string(200000, 'x');
  put("a", bytes);
  put("empty", "");
  EXPECT_EQ(read_file(path("a")), bytes);
  EXPECT_EQ(read_file(path("empty")), "");
}

TEST_F(Files, ReadsFilesThatSayTheyAreEmpty) {
  if (!fs::exists("/proc/self/status")) GTEST_SKIP() << "no /proc";
  EXPECT_NE(read_file("/proc/self/status").find("Name:"), std::string::npos);
  EXPECT_THROW(read_file("/proc/self/status", 3), DataError);
}

TEST_F(Files, ReadingRefusesWhatIsNoFile) {
  expect_error<MissingInputError>("cannot read '" + path("absent") + "': No such file",
                                  [&] { read_file(path("absent")); });
  expect_error<MissingInputError>("it is a folder, not a file", [&] { read_file(folder_); });
  put("a", "x");
  expect_error<MissingInputError>("Not a directory", [&] { read_file(path("a/b")); });
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  expect_error<MissingInputError>("it is not a regular file", [&] { read_file(path("pipe")); });
  EXPECT_THROW(read_file(""), MissingInputError);
  EXPECT_THROW(read_file(path(std::string(5000, 'x'))), MissingInputError);
  EXPECT_THROW(read_file(path("a") + std::string("\0.png", 5)), MissingInputError);
  fs::create_symlink("loop", path("loop"));
  EXPECT_THROW(read_file(path("loop")), MissingInputError);
}

TEST_F(Files, ReadingRefusesWhatMayNotBeRead) {
  if (!obeys_modes()) GTEST_SKIP() << "root may read everything";
  put("secret", "x");
  fs::permissions(path("secret"), fs::perms::none);
  EXPECT_THROW(read_file(path("secret")), MissingInputError);
}

TEST_F(Files, ReadingKeepsToItsLimit) {
  put("a", "12345");
  EXPECT_EQ(read_file(path("a"), 5), "12345");
  expect_error<DataError>("is longer than the 4 bytes", [&] { read_file(path("a"), 4); });
}

TEST_F(Files, MessagesAreOneLineWhateverThePath) {
  expect_error<MissingInputError>("\\x0a", [&] { read_file(path("a\nb")); });
}

TEST_F(Files, CheckingLeavesNothingBehind) {
  check_writable(path("new"));
  EXPECT_EQ(files(), 0u);
  put("old", "x");
  check_writable(path("old"));
  EXPECT_EQ(get("old"), "x");
  EXPECT_EQ(files(), 1u);
}

TEST_F(Files, CheckingRefusesWhatCannotBeWritten) {
  expect_error<OutputError>("No such file or directory", [&] { check_writable(path("absent/a")); });
  expect_error<OutputError>("it is not a regular file", [&] { check_writable(folder_); });
  EXPECT_THROW(check_writable(""), OutputError);
  EXPECT_THROW(check_writable(path("new/")), OutputError);
  if (!obeys_modes()) return;
  put("fixed", "x");
  fs::permissions(path("fixed"), fs::perms::owner_read);
  EXPECT_THROW(check_writable(path("fixed")), OutputError);
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THROW(check_writable(path("new")), OutputError);
  fs::permissions(folder_, fs::perms::owner_all);
}

TEST_F(Files, MakesFoldersWithTheirParents) {
  make_writable_folder(path("a/b/c"));
  EXPECT_TRUE(fs::is_directory(path("a/b/c")));
  EXPECT_TRUE(fs::is_empty(path("a/b/c")));
  make_writable_folder(path("a/b/c"));
  make_writable_folder(path("slash/"));
  EXPECT_TRUE(fs::is_directory(path("slash")));
}

TEST_F(Files, FoldersThatCannotBeMadeAreOutputErrors) {
  put("a", "x");
  expect_error<OutputError>("cannot create the folder '" + path("a") + "'",
                            [&] { make_writable_folder(path("a")); });
  EXPECT_THROW(make_writable_folder(path("a/b")), OutputError);
  EXPECT_THROW(make_writable_folder(""), OutputError);
  if (!obeys_modes()) return;
  make_writable_folder(path("fixed"));
  fs::permissions(path("fixed"), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_THROW(make_writable_folder(path("fixed")), OutputError);
}

TEST_F(Files, WritesAndReplaces) {
  write_atomically(path("a"), "first");
  EXPECT_EQ(get("a"), "first");
  write_atomically(path("a"), std::string("sec\0nd", 6));
  EXPECT_EQ(get("a"), std::string("sec\0nd", 6));
  write_atomically(path("a"), "");
  EXPECT_EQ(get("a"), "");
  EXPECT_EQ(files(), 1u);
}

TEST_F(Files, ReplacingFollowsLinksAndKeepsTheMode) {
  put("target", "old");
  fs::permissions(path("target"), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("target", path("link"));
  write_atomically(path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(get("target"), "new");
  EXPECT_EQ(fs::status(path("target")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("later", path("dangling"));
  write_atomically(path("dangling"), "new");
  EXPECT_EQ(get("later"), "new");
  EXPECT_TRUE(fs::is_symlink(path("dangling")));
}

TEST_F(Files, LinkIsReplacedWhereItIsNotFollowed) {
  put("target", "old");
  fs::create_symlink("target", path("link"));
  fs::create_symlink(folder_, path("to_folder"));
  for (const char* name : {"link", "to_folder"}) {
    check_writable(path(name), Links::kReplace);
    write_atomically(path(name), "new", Links::kReplace);
    EXPECT_FALSE(fs::is_symlink(path(name)));
    EXPECT_EQ(get(name), "new");
  }
  EXPECT_EQ(get("target"), "old");
  EXPECT_EQ(files(), 3U);
}

TEST_F(Files, WritingErrorsAreIoErrorsAndLeaveNothing) {
  expect_error<IoError>("cannot write '" + path("absent/a") + "': No such file",
                        [&] { write_atomically(path("absent/a"), "x"); });
  fs::create_directory(path("folder"));
  expect_error<IoError>("cannot write '" + path("folder") + "'",
                        [&] { write_atomically(path("folder"), "x"); });
  EXPECT_EQ(files(), 1u);
}

TEST_F(Files, AFullDiskKeepsTheOldFile) {
  put("a", "old");
  {
    const FullDisk disk(1000);
    expect_error<IoError>("cannot write '" + path("a") + "'",
                          [&] { write_atomically(path("a"), std::string(5000, 'x')); });
    expect_error<IoError>("cannot write '" + path("b") + "'",
                          [&] { write_durably(path("b"), std::string(5000, 'x')); });
  }
  EXPECT_EQ(get("a"), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(Files, StaleTemporaryFilesAreNotTouched) {
  const std::string stale = "a.tmp." + std::to_string(getpid()) + ".0";
  put(stale, "of somebody else");
  write_atomically(path("a"), "x");
  EXPECT_EQ(get(stale), "of somebody else");
  EXPECT_EQ(get("a"), "x");
}

TEST_F(Files, ReadersSeeTheOldFileOrTheNewOne) {
  const std::string contents[] = {std::string(100000, 'a'), std::string(150000, 'b')};
  write_atomically(path("a"), contents[0]);
  std::thread writer([&] {
    for (int i = 0; i < 50; ++i) write_atomically(path("a"), contents[i % 2]);
  });
  std::thread second_writer([&] {
    for (int i = 0; i < 50; ++i) write_atomically(path("a"), contents[i % 2]);
  });
  for (int i = 0; i < 200; ++i) {
    const std::string seen = read_file(path("a"));
    EXPECT_TRUE(seen == contents[0] || seen == contents[1]) << seen.size();
  }
  writer.join();
  second_writer.join();
  EXPECT_EQ(files(), 1u);
}

TEST_F(Files, DurableFilesAreNew) {
  write_durably(path("a"), "x");
  EXPECT_EQ(get("a"), "x");
  expect_error<IoError>("File exists", [&] { write_durably(path("a"), "y"); });
  EXPECT_EQ(get("a"), "x");
}

TEST_F(Files, SyncsFolders) {
  sync_folder(folder_);
  EXPECT_THROW(sync_folder(path("absent")), IoError);
  put("a", "x");
  EXPECT_THROW(sync_folder(path("a")), IoError);
}

TEST_F(Files, ListsFoldersInOrder) {
  put("b", "");
  put("a", "");
  put(".hidden", "");
  fs::create_directory(path("c"));
  EXPECT_EQ(list_folder(folder_), (Names{".hidden", "a", "b", "c"}));
  EXPECT_EQ(list_folder(path("absent")), Names{});
  EXPECT_EQ(list_folder(path("a")), Names{});
}

class CacheFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"RENORM_CACHE", "XDG_CACHE_HOME", "HOME"}) {
      const char* value = std::getenv(name);
      if (value != nullptr) saved_.emplace_back(name, value);
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (const char* name : {"RENORM_CACHE", "XDG_CACHE_HOME", "HOME"}) unsetenv(name);
    for (const auto& [name, value] : saved_) setenv(name.c_str(), value.c_str(), 1);
  }

  std::vector<std::pair<std::string, std::string>> saved_;
};

TEST_F(CacheFolder, TakesTheFirstVariableThatIsSet) {
  EXPECT_TRUE(fs::path(cache_folder()).is_absolute());
  setenv("HOME", "/home/a", 1);
  EXPECT_EQ(cache_folder(), "/home/a/.cache/renorm");
  setenv("XDG_CACHE_HOME", "relative", 1);  // its specification requires to ignore it
  EXPECT_EQ(cache_folder(), "/home/a/.cache/renorm");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(cache_folder(), "/cache/renorm");
  setenv("RENORM_CACHE", "/mine", 1);
  EXPECT_EQ(cache_folder(), "/mine");
  setenv("RENORM_CACHE", "", 1);
  EXPECT_EQ(cache_folder(), "/cache/renorm");
}

class LineFiles : public TemporaryFolder {};

TEST_F(LineFiles, AppendsWholeLines) {
  {
    LineFile file(path("a"));
    EXPECT_EQ(file.size(), 0);
    file.append("first");
    EXPECT_EQ(get("a"), "first\n");
    file.append("");
    file.sync();
    EXPECT_EQ(file.size(), 7);
  }
  LineFile again(path("a"));
  EXPECT_EQ(again.size(), 7);
  again.append("third");
  EXPECT_EQ(get("a"), "first\n\nthird\n");
}

TEST_F(LineFiles, CutsWhatCameAfter) {
  put("a", "first\nsecond\nthi");
  LineFile file(path("a"), 6);
  EXPECT_EQ(file.size(), 6);
  EXPECT_EQ(get("a"), "first\n");
  file.append("next");
  EXPECT_EQ(get("a"), "first\nnext\n");
}

TEST_F(LineFiles, KeepsAllOrNothingOnDemand) {
  put("a", "first\n");
  EXPECT_EQ(LineFile(path("a"), 6).size(), 6);
  EXPECT_EQ(get("a"), "first\n");
  EXPECT_EQ(LineFile(path("a"), 0).size(), 0);
  EXPECT_EQ(get("a"), "");
  EXPECT_EQ(LineFile(path("new"), 0).size(), 0);
}

TEST_F(LineFiles, RefusesAFileThatIsTooShort) {
  put("a", "first\n");
  expect_error<DataError>("'" + path("a") + "' has 6 bytes, but 7 were written to it",
                          [&] { LineFile file(path("a"), 7); });
  EXPECT_EQ(get("a"), "first\n");
}

TEST_F(LineFiles, RefusesWhatIsNoFile) {
  EXPECT_THROW(LineFile{folder_}, OutputError);
  EXPECT_THROW(LineFile{path("absent/a")}, OutputError);
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THROW(LineFile{path("pipe")}, OutputError);
}

TEST_F(LineFiles, ALineThatDoesNotFitIsTakenBack) {
  LineFile file(path("a"));
  file.append("first");
  {
    const FullDisk disk(10);
    expect_error<IoError>("cannot write '" + path("a") + "'", [&] { file.append("a line of more bytes"); });
  }
  EXPECT_EQ(get("a"), "first\n");
  EXPECT_EQ(file.size(), 6);
  file.append("next");
  EXPECT_EQ(get("a"), "first\nnext\n");
}

}  // namespace
}  // namespace renorm::testing
