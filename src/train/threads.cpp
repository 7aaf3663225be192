#include "train/threads.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <thread>

#include "base/address_space.h"

namespace renorm::train {
namespace {

// For the first operations of LibTorch.
constexpr size_t kLibraryBytes = size_t{32} << 20;
// A product so large that BLAS uses all of its threads.
constexpr int64_t kProductSize = 256;

// OpenBLAS keeps the buffers of the threads that it had before.
size_t blas_bytes(int count) {
  using GetNumber = int (*)();
  const auto number = reinterpret_cast<GetNumber>(dlsym(RTLD_DEFAULT, "openblas_get_num_threads"));
  if (number == nullptr) return 0;
  const int more = std::max(0, count - number());
  return (static_cast<size_t>(more) + 1) * kBlasBufferBytes;  // one for the thread that calls it
}

size_t stack_bytes(int count) {
  pthread_attr_t attributes;
  size_t each = 0;
  if (pthread_getattr_default_np(&attributes) != 0) return 0;
  pthread_attr_getstacksize(&attributes, &each);
  pthread_attr_destroy(&attributes);
  return static_cast<size_t>(count - 1) * each;
}

}  // namespace

void use_threads(int count) {
  const size_t bytes = kLibraryBytes + blas_bytes(count) + stack_bytes(count);
  if (!has_address_space(bytes)) {
    throw MemoryError(
        fmt::format("{} thread{} and BLAS need {} MB of memory, but less is available (see 'ulimit -v'); "
                    "raise the limit, "
                    "or use fewer --threads",
                    count, count == 1 ? "" : "s", bytes >> 20));
  }
  at::set_num_threads(count);
  at::parallel_for(0, count, 1, [](int64_t /*first*/, int64_t /*last*/) {});
  const at::Tensor one = at::ones({kProductSize, kProductSize});
  at::mm(one, one);
}

int at_most_cpus(int count) {
  const auto cpus = static_cast<int>(std::thread::hardware_concurrency());
  return cpus > 0 ? std::min(count, cpus) : count;
}

}  // namespace renorm::train
