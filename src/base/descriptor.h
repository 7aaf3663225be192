// POSIX file descriptors for those who handle files themselves; others use files.h.
#pragma once

#include <cstddef>
#include <string>

namespace renorm {

// Closes what it holds.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return number_; }
  bool valid() const { return number_ >= 0; }
  int release();  // the caller closes it
  bool
  close_now();  // false, with errno set, if data was lost; network file systems report a full disk only here

 private:
  int number_;
};

// open(2) with O_CLOEXEC, again after a signal; -1 with errno set.
int open_file(const std::string& path, int flags);

// All of the bytes, across short writes and signals; false with errno set.
bool write_all(int descriptor, const char* data, size_t size);

// fsync, again after a signal; false with errno set.
bool sync_descriptor(int descriptor);

// "cannot write 'path': No space left on device".
std::string failure(const char* verb, const std::string& path, int error);

// The folder that holds `path`.
std::string parent_folder(const std::string& path);

}  // namespace renorm
