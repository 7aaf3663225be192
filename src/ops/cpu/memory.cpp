#include "ops/cpu/memory.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstdint>

namespace renorm::ops {
namespace {

// From this size on glibc maps every allocation anew.
constexpr size_t kHugeBytes = size_t{32} << 20;
constexpr uintptr_t kPage = 4096;

void advise_huge_pages(void* data, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const uintptr_t skipped = (kPage - reinterpret_cast<uintptr_t>(data) % kPage) % kPage;
  const uintptr_t whole_pages = (bytes - skipped) / kPage * kPage;
  // Advice only: a system that cannot follow it loses nothing.
  (void)madvise(static_cast<char*>(data) + skipped, whole_pages, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace

at::Tensor empty_output(const at::Tensor& like) {
  at::Tensor output = at::empty_like(like);
  if (output.nbytes() >= kHugeBytes) advise_huge_pages(output.data_ptr(), output.nbytes());
  return output;
}

}  // namespace renorm::ops
