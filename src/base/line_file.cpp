#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"

namespace renorm {
namespace {

bool cut(int descriptor, int64_t size) {
  int result = 0;
  do {
    result = ::ftruncate(descriptor, size);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

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
    throw DataError(fmt::format(
        "'{}' has {} bytes, but {} were written to it: it was cut or replaced, put the right file back",
        printable(path_), size_, keep));
  }
  if (keep >= 0 && keep < size_) {
    if (!cut(descriptor.get(), keep)) throw IoError(failure("cut", path_, errno));
    size_ = keep;
  }
  // The file may be new: its name must be on disk before anything counts on its lines.
  sync_folder(parent_folder(path_));
  descriptor_ = descriptor.release();
}

LineFile::~LineFile() { ::close(descriptor_); }

void LineFile::append(const std::string& line) {
  const std::string bytes = line + '\n';
  if (!write_all(descriptor_, bytes.data(), bytes.size())) {
    const int error = errno;
    cut(descriptor_, size_);  // what a full disk let through of the line
    throw IoError(failure("write", path_, error));
  }
  size_ += static_cast<int64_t>(bytes.size());
}

void LineFile::sync() {
  if (!sync_descriptor(descriptor_)) throw IoError(failure("write", path_, errno));
}

}  // namespace renorm
