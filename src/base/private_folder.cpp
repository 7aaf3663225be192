#include "base/private_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/descriptor.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"

namespace renorm {
namespace {

// "/a/b/" names the target of a link "/a/b".
std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::string private_folder_problem(const std::string& path) {
  struct stat status = {};
  if (::lstat(without_slash(path).c_str(), &status) != 0) return failure("open the folder", path, errno);
  const char* problem = nullptr;
  if (S_ISLNK(status.st_mode)) {
    problem = "is a symbolic link";
  } else if (!S_ISDIR(status.st_mode)) {
    problem = "is not a folder";
  } else if (status.st_uid != ::geteuid()) {
    problem = "belongs to another user";
  } else if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    problem = "can be written to by other users";
  }
  return problem == nullptr ? "" : fmt::format("'{}' {}", printable(path), problem);
}

void make_private_folder(const std::string& path) {
  const std::string folder = without_slash(path);
  std::error_code ignored;  // the next call reports the same error
  std::filesystem::create_directories(parent_folder(folder), ignored);
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    throw OutputError(failure("create the folder", path, errno));
  }
  const std::string problem = private_folder_problem(folder);
  if (!problem.empty()) throw OutputError(problem);
  make_writable_folder(folder);
}

}  // namespace renorm
