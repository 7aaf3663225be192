// Address space, which 'ulimit -v' limits.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <new>
#include <stdexcept>

namespace renorm {

// A limit of memory is too low. The message names what needs how much. Exit code kExitInternal.
struct MemoryError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Whether an allocation failed. LibTorch's allocator has no kind of error of its own.
inline bool is_out_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         std::strstr(error.what(), "DefaultCPUAllocator") != nullptr;
}

// OpenBLAS keeps a buffer of this size per thread and one for each thread that calls it. When it gets none,
// it tries again without end.
constexpr size_t kBlasBufferBytes = size_t{128} << 20;

// Whether `bytes` more could be mapped now. Maps and releases them without touching them. Calls the kernel
// directly, because it also runs before the libraries are initialized.
inline bool has_address_space(size_t bytes) {
  const long address = ::syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
  if (address == -1) return false;
  ::syscall(SYS_munmap, address, bytes);
  return true;
}

}  // namespace renorm
