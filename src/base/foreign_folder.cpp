#include "base/foreign_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/descriptor.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"

namespace renorm {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts;
  for (const fs::path& part : fs::path(name)) {
    if (!part.empty() && part != ".") parts.push_back(part.string());
  }
  return parts;
}

void refuse_link(int folder, const std::string& part, const std::string& path) {
  struct stat status = {};
  if (::fstatat(folder, part.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISLNK(status.st_mode)) return;
  throw DataError(fmt::format("{}: '{}' is a symbolic link, which is not followed; copy the file there",
                              printable(path), printable(part)));
}

// openat(2) without following a link, repeated after a signal. Returns -1 with errno set on failure.
int open_part(int folder, const std::string& part, int flags) {
  int descriptor = -1;
  do {
    descriptor = ::openat(folder, part.c_str(), flags | O_NOFOLLOW | O_CLOEXEC);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

}  // namespace

bool is_inside(const std::string& name) {
  if (name.find('\0') != std::string::npos || fs::path(name).is_absolute()) return false;
  const std::vector<std::string> parts = parts_of(name);
  return std::find(parts.begin(), parts.end(), "..") == parts.end();
}

std::string read_file_inside(const std::string& folder, const std::string& name, int64_t limit) {
  const std::string path = (fs::path(folder) / name).string();
  if (!is_inside(name)) {
    throw DataError(fmt::format("{}: outside of the folder '{}'", printable(path), printable(folder)));
  }
  const std::vector<std::string> parts = parts_of(name);
  auto current = std::make_unique<Descriptor>(open_file(folder, O_RDONLY | O_DIRECTORY));
  for (size_t i = 0; i < parts.size() && current->valid(); ++i) {
    const bool last = i + 1 == parts.size();
    const int next = open_part(current->get(), parts[i], O_RDONLY | (last ? O_NONBLOCK : O_DIRECTORY));
    const int error = errno;
    if (next < 0) refuse_link(current->get(), parts[i], path);
    current = std::make_unique<Descriptor>(next);
    errno = error;
  }
  return read_opened(current->release(), path, limit);
}

}  // namespace renorm
