#include "base/private_folder.h"

#include <sys/stat.h>

#include "base/errors.h"
#include "temporary_folder.h"

namespace renorm::testing {
namespace {

namespace fs = std::filesystem;

using PrivateFolder = TemporaryFolder;

mode_t mode_of(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  return status.st_mode & 0777;
}

TEST_F(PrivateFolder, IsMadeForTheUserAlone) {
  const mode_t before = umask(0);
  make_private_folder(path("new/inner"));
  umask(before);
  EXPECT_EQ(mode_of(path("new/inner")), mode_t{0700});
  EXPECT_EQ(private_folder_problem(path("new/inner")), "");
  EXPECT_EQ(private_folder_problem(path("new/inner/")), "");
  make_private_folder(path("new/inner"));
  EXPECT_TRUE(fs::is_empty(path("new/inner")));
}

TEST_F(PrivateFolder, MayBeReadByOthers) {
  fs::create_directory(path("a"));
  ASSERT_EQ(chmod(path("a").c_str(), 0755), 0);
  EXPECT_EQ(private_folder_problem(path("a")), "");
  make_private_folder(path("a"));
}

TEST_F(PrivateFolder, ThatOthersCanWriteToIsRefused) {
  fs::create_directory(path("a"));
  for (const mode_t mode : {mode_t{0770}, mode_t{0702}, mode_t{0777}}) {
    ASSERT_EQ(chmod(path("a").c_str(), mode), 0);
    EXPECT_EQ(private_folder_problem(path("a")), "'" + path("a") + "' can be written to by other users");
    expect_error<OutputError>("by other users", [&] { make_private_folder(path("a")); });
  }
}

TEST_F(PrivateFolder, OfAnotherUserIsRefused) {
  // The root folder is root's; root itself can give a folder away.
  std::string folder = "/";
  if (geteuid() == 0) {
    folder = path("given");
    fs::create_directory(folder);
    ASSERT_EQ(chown(folder.c_str(), 12345, 12345), 0);
  }
  EXPECT_EQ(private_folder_problem(folder), "'" + folder + "' belongs to another user");
  expect_error<OutputError>("belongs to another user", [&] { make_private_folder(folder); });
}

TEST_F(PrivateFolder, LinksAndFilesAreRefused) {
  fs::create_directory(path("target"));
  fs::create_directory_symlink("target", path("link"));
  fs::create_directory_symlink("nowhere", path("dangling"));
  put("file", "");
  for (const char* name : {"link", "link/", "dangling"}) {
    expect_error<OutputError>("is a symbolic link", [&] { make_private_folder(path(name)); });
  }
  EXPECT_FALSE(fs::exists(path("nowhere")));
  expect_error<OutputError>("is not a folder", [&] { make_private_folder(path("file")); });
  expect_error<OutputError>("cannot create the folder", [&] { make_private_folder(path("file/inner")); });
  EXPECT_NE(private_folder_problem(path("none")), "");
}

}  // namespace
}  // namespace renorm::testing
