#include "base/foreign_folder.h"

#include "base/errors.h"
#include "temporary_folder.h"

namespace renorm::testing {
namespace {

namespace fs = std::filesystem;

class ForeignFolder : public TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    fs::create_directories(path("theirs/inner"));
    put("own", "secret");
    put("theirs/a", "A");
    put("theirs/inner/b", "B");
  }

  std::string read(const std::string& name) const { return read_file_inside(path("theirs"), name); }
};

TEST_F(ForeignFolder, FilesInsideAreRead) {
  EXPECT_EQ(read("a"), "A");
  EXPECT_EQ(read("./inner//b"), "B");
  fs::create_directory_symlink("theirs", path("typed"));
  EXPECT_EQ(read_file_inside(path("typed"), "a"), "A");
  EXPECT_EQ(read_file_inside(path("typed/"), "inner/b"), "B");
}

TEST_F(ForeignFolder, LinksAreNotFollowed) {
  fs::create_symlink("../own", path("theirs/file"));
  fs::create_symlink("a", path("theirs/harmless"));
  fs::create_symlink("nowhere", path("theirs/dangling"));
  fs::create_directory_symlink("..", path("theirs/up"));
  for (const char* name : {"file", "harmless", "dangling", "up", "up/own", "inner/../file"}) {
    SCOPED_TRACE(name);
    EXPECT_THROW(read(name), DataError);
  }
  expect_error<DataError>("theirs/up/own: 'up' is a symbolic link", [&] { read("up/own"); });
  expect_error<DataError>("'file' is a symbolic link", [&] { read("file"); });
}

TEST_F(ForeignFolder, NamesThatLeaveItAreRefused) {
  for (const std::string& name : {std::string("../own"), std::string("inner/../../own"), path("own"),
                                  std::string("inner/../a"), std::string("a\0b", 3)}) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(is_inside(name));
    expect_error<DataError>("outside of the folder", [&] { read(name); });
  }
  for (const char* name : {"a", "inner/b", ".", "./a", "", "..a", "a..", "a/..b/c"}) {
    EXPECT_TRUE(is_inside(name)) << name;
  }
}

TEST_F(ForeignFolder, ErrorsAreThoseOfReadFile) {
  expect_error<MissingInputError>("theirs/none': No such file", [&] { read("none"); });
  expect_error<MissingInputError>("No such file", [&] { read("none/b"); });
  expect_error<MissingInputError>("Not a directory", [&] { read("a/b"); });
  expect_error<MissingInputError>("it is a folder", [&] { read("inner"); });
  expect_error<MissingInputError>("No such file", [&] { read_file_inside(path("absent"), "a"); });
  expect_error<DataError>("longer than the 0 bytes", [&] { read_file_inside(path("theirs"), "a", 0); });
}

}  // namespace
}  // namespace renorm::testing
