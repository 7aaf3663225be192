#include "base/descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/text.h"

namespace renorm {
namespace {

// Some kernels refuse a write of 2 GB or more as a whole.
constexpr size_t kMaxBytesPerWrite = size_t{1} << 30;

constexpr int kNewFileMode = 0666;  // before the umask

}  // namespace

Descriptor::~Descriptor() {
  if (valid()) ::close(number_);
}

int Descriptor::release() {
  const int number = number_;
  number_ = -1;
  return number;
}

bool Descriptor::close_now() {
  // After EINTR Linux has closed the descriptor anyway. A second close could hit another file.
  return ::close(release()) == 0 || errno == EINTR;
}

int open_file(const std::string& path, int flags) {
  // The system call would stop at the zero byte and open another file.
  if (path.find('\0') != std::string::npos) {
    errno = EINVAL;
    return -1;
  }
  int descriptor = -1;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC, kNewFileMode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

bool write_all(int descriptor, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(descriptor, data, std::min(size, kMaxBytesPerWrite));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    if (written == 0) {  // never for a regular file; without this the loop could go on for ever
      errno = EIO;
      return false;
    }
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool is_open_at(int descriptor, const std::string& path) {
  struct stat held = {};
  struct stat found = {};
  if (::fstat(descriptor, &held) != 0 || ::stat(path.c_str(), &found) != 0) return false;
  return held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

bool sync_descriptor(int descriptor) {
  int result = 0;
  do {
    result = ::fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

std::string failure(const char* verb, const std::string& path, int error) {
  return fmt::format("cannot {} '{}': {}", verb, printable(path), std::generic_category().message(error));
}

std::string parent_folder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace renorm
