#include "cli/tensor_memory.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace renorm::cli {
namespace {

// Below this size glibc itself keeps freed memory.
constexpr size_t kLarge = size_t{32} << 20;
// A kept block is reused if it exceeds the tensor by at most 1 / kEmptyShare of the tensor's size.
constexpr size_t kEmptyShare = 8;

// Blocks from LibTorch's own allocator, those of large tensors kept in between.
class Pool {
 public:
  void* take(size_t bytes) {
    if (bytes < kLarge) return source_.raw_allocate(bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = kept_.lower_bound(bytes);
    if (found != kept_.end() && found->first - bytes <= bytes / kEmptyShare) return reuse(found);
    void* block = fresh(bytes);
    start_use(block, bytes);
    return block;
  }

  void give_back(void* block) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = in_use_.find(block);
      if (found != in_use_.end()) {
        memory_.in_use -= found->second;
        memory_.kept += found->second;
        kept_.emplace(found->second, block);
        in_use_.erase(found);
        return;
      }
    }
    source_.raw_deallocate(block);
  }

  TensorMemory memory() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return memory_;
  }

 private:
  using Kept = std::multimap<size_t, void*>;  // by size

  void start_use(void* block, size_t bytes) {
    in_use_.emplace(block, bytes);
    memory_.in_use += bytes;
    memory_.max_in_use = std::max(memory_.max_in_use, memory_.in_use);
  }

  void* reuse(Kept::iterator found) {
    const auto [bytes, block] = *found;
    kept_.erase(found);
    memory_.kept -= bytes;
    start_use(block, bytes);
    return block;
  }

  void* fresh(size_t bytes) {
    const size_t max = std::max(memory_.max_in_use, memory_.in_use + bytes);
    release_until(max - memory_.in_use - bytes);
    try {
      return source_.raw_allocate(bytes);
    } catch (const c10::Error&) {
      if (kept_.empty()) throw;
    }
    release_until(0);
    return source_.raw_allocate(bytes);
  }

  // The largest first, to release few blocks.
  void release_until(size_t kept) {
    while (memory_.kept > kept) {
      const auto last = std::prev(kept_.end());
      memory_.kept -= last->first;
      source_.raw_deallocate(last->second);
      kept_.erase(last);
    }
  }

  std::mutex mutex_;
  c10::Allocator& source_ = *c10::GetDefaultCPUAllocator();
  std::unordered_map<void*, size_t> in_use_;
  Kept kept_;
  TensorMemory memory_{};
};

// Never destroyed: tensors may live as long as the process.
Pool& pool() {
  static Pool& instance = *new Pool;
  return instance;
}

void give_back(void* block) { pool().give_back(block); }

// Without `override`: releases of LibTorch differ in which of these the base has.
struct PooledAllocator final : c10::Allocator {
  // NOLINTBEGIN(modernize-use-override, readability-identifier-naming)
  c10::DataPtr allocate(size_t bytes) const {
    void* block = pool().take(bytes);
    return {block, block, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DataPtr allocate(size_t bytes) { return static_cast<const PooledAllocator*>(this)->allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }
  // NOLINTEND(modernize-use-override, readability-identifier-naming)
};

}  // namespace

void reuse_tensor_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, static_cast<int>(kLarge));
  mallopt(M_TRIM_THRESHOLD, -1);  // never return memory at the end of the heap
#endif
  static PooledAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

TensorMemory tensor_memory() { return pool().memory(); }

}  // namespace renorm::cli
