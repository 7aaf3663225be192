#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "base/descriptor.h"
#include "base/errors.h"
#include "base/text.h"

namespace renorm {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;             // as many as Linux follows
constexpr int kMaxTemporaryNames = 1000;  // left behind by killed processes of the same number
constexpr size_t kMaxBytesPerRead = size_t{1} << 30;

bool is_missing(int error) {
  return error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM || error == ELOOP ||
         error == ENAMETOOLONG || error == EINVAL || error == ENXIO;
}

// Up to `size` bytes; fewer only at the end of the file.
size_t read_up_to(int descriptor, const std::string& path, char* into, size_t size) {
  size_t filled = 0;
  while (filled < size) {
    const ssize_t count = ::read(descriptor, into + filled, std::min(size - filled, kMaxBytesPerRead));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw IoError(failure("read", path, errno));
    if (count == 0) break;
    filled += static_cast<size_t>(count);
  }
  return filled;
}

[[noreturn]] void refuse_length(const std::string& path, int64_t limit) {
  throw DataError(fmt::format("'{}' is longer than the {} bytes allowed", printable(path), limit));
}

// A file may grow while it is read, and files in /proc report size 0: the stated size is only a first guess.
std::string read_rest(int descriptor, const std::string& path, int64_t stated, int64_t limit) {
  std::string bytes;
  size_t filled = 0;
  size_t request = static_cast<size_t>(stated) + 1;
  try {
    while (true) {
      bytes.resize(filled + request);
      const size_t count = read_up_to(descriptor, path, bytes.data() + filled, request);
      filled += count;
      if (filled > static_cast<size_t>(limit)) refuse_length(path, limit);
      if (count < request) break;
      request = size_t{1} << 16;
    }
  } catch (const std::bad_alloc&) {
    throw IoError(
        fmt::format("cannot read '{}': its {} bytes do not fit into memory", printable(path), stated));
  }
  bytes.resize(filled);
  return bytes;
}

bool is_link(const fs::path& path) {
  std::error_code error;
  return fs::is_symlink(fs::symlink_status(path, error));
}

struct Temporary {
  Descriptor descriptor;
  std::string path;
  int error;  // if the descriptor is invalid
};

// An empty file with a new name. Exclusive creation separates processes that share the folder and, in
// different containers, the process number.
Temporary make_temporary(const std::string& beside) {
  for (int i = 0;; ++i) {
    std::string name = fmt::format("{}.tmp.{}.{}", beside, static_cast<long>(getpid()), i);
    const int number = open_file(name, O_WRONLY | O_CREAT | O_EXCL);
    const int error = number < 0 ? errno : 0;
    if (error != EEXIST || i == kMaxTemporaryNames) {
      return Temporary{Descriptor(number), std::move(name), error};
    }
  }
}

// Writes, syncs and closes; returns the error number, or 0.
int fill(Descriptor& descriptor, const std::string& bytes) {
  if (!write_all(descriptor.get(), bytes.data(), bytes.size())) return errno;
  if (!sync_descriptor(descriptor.get())) return errno;
  return descriptor.close_now() ? 0 : errno;
}

// Some file systems have no modes, so a mode that cannot be set is not an error.
void copy_mode(const std::string& from, const Descriptor& to) {
  struct stat status = {};
  if (is_link(from)) return;
  if (::stat(from.c_str(), &status) == 0) static_cast<void>(::fchmod(to.get(), status.st_mode & 0777));
}

// Throws OutputError unless a file of this name can be created in its folder.
void try_temporary(const std::string& beside, const std::string& path) {
  const Temporary temporary = make_temporary(beside);
  if (!temporary.descriptor.valid()) throw OutputError(failure("write", path, temporary.error));
  ::unlink(temporary.path.c_str());
}

// Folders of `path` that do not exist, innermost first.
std::vector<std::string> missing_folders(fs::path path) {
  std::vector<std::string> missing;
  std::error_code error;
  while (!path.empty() && !fs::exists(path, error)) {
    missing.push_back(path.string());
    path = path.parent_path();
  }
  return missing;
}

std::optional<std::string> folder_from(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

bool cut(int descriptor, int64_t size) {
  int result = 0;
  do {
    result = ::ftruncate(descriptor, size);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

std::string final_path(const std::string& path, Links links) {
  if (links == Links::kReplace) return path;
  fs::path target = path;
  for (int i = 0; i < kMaxLinks; ++i) {
    if (!is_link(target)) break;
    std::error_code error;
    const fs::path next = fs::read_symlink(target, error);
    if (error) break;
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  return target.string();
}

std::string read_file(const std::string& path, int64_t limit) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer. For regular files it has no effect.
  return read_opened(open_file(path, O_RDONLY | O_NONBLOCK), path, limit);
}

std::string read_opened(int number, const std::string& path, int64_t limit) {
  const Descriptor descriptor(number);
  if (!descriptor.valid()) {
    const int error = errno;
    if (is_missing(error)) throw MissingInputError(failure("read", path, error));
    throw IoError(failure("read", path, error));
  }
  struct stat status = {};
  if (::fstat(descriptor.get(), &status) != 0) throw IoError(failure("read", path, errno));
  if (S_ISDIR(status.st_mode)) {
    throw MissingInputError(fmt::format("cannot read '{}': it is a folder, not a file", printable(path)));
  }
  if (!S_ISREG(status.st_mode)) {
    throw MissingInputError(fmt::format("cannot read '{}': it is not a regular file", printable(path)));
  }
  if (status.st_size > limit) refuse_length(path, limit);
  return read_rest(descriptor.get(), path, status.st_size, limit);
}

void check_writable(const std::string& path, Links links) {
  const std::string target = final_path(path, links);
  if (target.empty()) throw OutputError(failure("write", path, ENOENT));
  std::error_code error;
  if (fs::exists(target, error) && !is_link(target)) {
    if (!fs::is_regular_file(target, error)) {
      throw OutputError(fmt::format("cannot write '{}': it is not a regular file", printable(path)));
    }
    if (::access(target.c_str(), W_OK) != 0) throw OutputError(failure("write", path, errno));
  }
  if (fs::path(target).filename().empty()) throw OutputError(failure("write", path, EISDIR));
  try_temporary(target, path);
}

void make_writable_folder(const std::string& path) {
  const std::vector<std::string> missing = missing_folders(path);
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    throw OutputError(fmt::format("cannot create the folder '{}': {}", printable(path), error.message()));
  }
  if (!fs::is_directory(path, error)) {
    throw OutputError(fmt::format("cannot create the folder '{}': a file has that name", printable(path)));
  }
  try_temporary((fs::path(path) / "writable").string(), path);
  for (const std::string& folder : missing) sync_folder(parent_folder(folder));
}

void write_atomically(const std::string& path, const std::string& bytes, Links links) {
  const std::string target = final_path(path, links);
  Temporary temporary = make_temporary(target);
  if (!temporary.descriptor.valid()) throw IoError(failure("write", path, temporary.error));
  copy_mode(target, temporary.descriptor);
  int error = fill(temporary.descriptor, bytes);
  if (error == 0 && ::rename(temporary.path.c_str(), target.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.path.c_str());
    throw IoError(failure("write", path, error));
  }
  sync_folder(parent_folder(target));
}

void write_durably(const std::string& path, const std::string& bytes) {
  Descriptor descriptor(open_file(path, O_WRONLY | O_CREAT | O_EXCL));
  if (!descriptor.valid()) throw IoError(failure("write", path, errno));
  const int error = fill(descriptor, bytes);
  if (error == 0) return;
  ::unlink(path.c_str());
  throw IoError(failure("write", path, error));
}

void sync_folder(const std::string& path) {
  const Descriptor descriptor(open_file(path, O_RDONLY | O_DIRECTORY));
  if (!descriptor.valid()) throw IoError(failure("write to the folder", path, errno));
  if (sync_descriptor(descriptor.get())) return;
  // File systems without this operation report EINVAL; they offer nothing better.
  if (errno != EINVAL) throw IoError(failure("write to the folder", path, errno));
}

std::vector<std::string> list_folder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(path, error);
  if (error.value() == ENOENT || error.value() == ENOTDIR) return names;
  if (error) {
    if (is_missing(error.value())) throw MissingInputError(failure("list the folder", path, error.value()));
    throw IoError(failure("list the folder", path, error.value()));
  }
  for (; entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) throw IoError(failure("list the folder", path, error.value()));
  std::sort(names.begin(), names.end());
  return names;
}

std::string cache_folder() {
  if (const auto folder = folder_from("RENORM_CACHE")) return *folder;
  const auto caches = folder_from("XDG_CACHE_HOME");
  if (caches && fs::path(*caches).is_absolute()) return (fs::path(*caches) / "renorm").string();
  if (const auto home = folder_from("HOME")) return (fs::path(*home) / ".cache" / "renorm").string();
  const passwd* user = ::getpwuid(::getuid());
  if (user != nullptr && user->pw_dir != nullptr && *user->pw_dir != '\0') {
    return (fs::path(user->pw_dir) / ".cache" / "renorm").string();
  }
  std::error_code error;
  const fs::path temporary = fs::temp_directory_path(error);
  const fs::path base = error ? fs::path("/tmp") : temporary;
  return (base / fmt::format("renorm-cache-{}", static_cast<long>(::getuid()))).string();
}

LineFile::LineFile(std::string path, int64_t keep) : path_(std::move(path)), descriptor_(-1), size_(0) {
  Descriptor descriptor(open_file(path_, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK));
  if (!descriptor.valid()) throw OutputError(failure("write", path_, errno));
  struct stat status = {};
  if (::fstat(descriptor.get(), &status) != 0) throw IoError(failure("write", path_, errno));
  if (!S_ISREG(status.st_mode)) {
    throw OutputError(fmt::format("cannot write '{}': it is not a regular file", printable(path_)));
  }
  size_ = status.st_size;
  if (keep > size_) {
    throw DataError(
        fmt::format("'{}' has {} bytes, but {} were written to it: it was truncated or replaced, restore it",
                    printable(path_), size_, keep));
  }
  if (keep >= 0 && keep < size_) {
    if (!cut(descriptor.get(), keep)) throw IoError(failure("cut", path_, errno));
    size_ = keep;
  }
  // The file may be new. Its name must be on disk before anything relies on its lines.
  sync_folder(parent_folder(path_));
  descriptor_ = descriptor.release();
}

LineFile::~LineFile() { ::close(descriptor_); }

void LineFile::append(const std::string& line) {
  const std::string bytes = line + '\n';
  if (!write_all(descriptor_, bytes.data(), bytes.size())) {
    const int error = errno;
    cut(descriptor_, size_);  // removes the part of the line that a full disk accepted
    throw IoError(failure("write", path_, error));
  }
  size_ += static_cast<int64_t>(bytes.size());
}

void LineFile::sync() {
  if (!sync_descriptor(descriptor_)) throw IoError(failure("write", path_, errno));
}

bool LineFile::is_intact() const {
  struct stat status = {};
  return is_open_at(descriptor_, path_) && ::fstat(descriptor_, &status) == 0 && status.st_size == size_;
}

}  // namespace renorm
