#include "ops/cpu/tensors.h"

#include <ATen/Parallel.h>

#include "ops/arguments.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace renorm::ops {
namespace {

// Fewer values than this are not worth a second thread.
constexpr int64_t kParallelValues = 32768;

// glibc maps allocations of this size and above anew each time.
constexpr size_t kHugeBytes = size_t{32} << 20;
constexpr uintptr_t kPage = 4096;

void advise_huge_pages(void* data, size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const uintptr_t skipped = (kPage - reinterpret_cast<uintptr_t>(data) % kPage) % kPage;
  const uintptr_t whole_pages = (bytes - skipped) / kPage * kPage;
  // Advice only: a system that ignores it loses nothing.
  (void)madvise(static_cast<char*>(data) + skipped, whole_pages, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

}  // namespace

bool has_kernel(const at::Tensor& input) {
  if (composite_is_forced()) return false;
  const at::ScalarType type = input.scalar_type();
  return type == at::kFloat || type == at::kDouble || type == at::kBFloat16;
}

kernels::ParallelFor parallel_for(int64_t values) {
  if (values < kParallelValues) {
    return [](int64_t count, const kernels::Body& body) { body(0, count); };
  }
  return [](int64_t count, const kernels::Body& body) { at::parallel_for(0, count, 1, body); };
}

KernelInput kernel_input(const at::Tensor& input) {
  const int64_t n = input.size(0);
  const int64_t c = input.size(1);
  const int64_t s = input.numel() == 0 ? 0 : input.numel() / (n * c);
  const at::Tensor tensor = dense(input);
  const bool last = is_channels_last(tensor) && (s == 1 || !tensor.is_contiguous());
  return {tensor, last ? kernels::Layout::kNsc : kernels::Layout::kNcs, {n, c, s}};
}

at::Tensor with_strides_of(const at::Tensor& tensor, const at::Tensor& like) {
  if (tensor.strides() == like.strides() && tensor.scalar_type() == like.scalar_type()) return tensor;
  at::Tensor copy = at::empty_like(like);
  return copy.copy_(tensor);
}

at::Tensor empty_output(const at::Tensor& like) {
  at::Tensor output = at::empty_like(like);
  if (output.nbytes() >= kHugeBytes) advise_huge_pages(output.data_ptr(), output.nbytes());
  return output;
}

}  // namespace renorm::ops
