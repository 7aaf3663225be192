// POSIX file descriptors, for code that needs more than files.h.
#pragma once

#include <cstddef>
#include <string>

namespace renorm {

// Owns a file descriptor and closes it.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return number_; }
  bool valid() const { return number_ >= 0; }
  int release();  // the caller closes it
  // False, with errno set, if data was lost: network file systems report a full disk only here.
  bool close_now();

 private:
  int number_;
};

// open(2) with O_CLOEXEC, repeated after a signal. Returns -1 with errno set on failure.
int open_file(const std::string& path, int flags);

// Writes all bytes, across short writes and signals. Returns false with errno set on failure.
bool write_all(int descriptor, const char* data, size_t size);

// Whether the path leads to the file that is open.
bool is_open_at(int descriptor, const std::string& path);

// fsync, repeated after a signal. Returns false with errno set on failure.
bool sync_descriptor(int descriptor);

// "cannot write 'path': No space left on device".
std::string failure(const char* verb, const std::string& path, int error);

// The folder that holds `path`.
std::string parent_folder(const std::string& path);

}  // namespace renorm
