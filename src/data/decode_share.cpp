#include "data/decode_share.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace renorm::data {
namespace {

struct Budget {
  std::mutex queue;  // held by the thread that waits, so that small shares do not overtake a large one
  std::mutex mutex;  // for `taken`
  std::condition_variable returned;
  int64_t taken = 0;
};

Budget& budget() {
  static Budget budget;
  return budget;
}

}  // namespace

DecodeShare::DecodeShare(int64_t bytes) {
  if (bytes <= kUncountedBytes) return;
  Budget& all = budget();
  const std::lock_guard<std::mutex> first(all.queue);
  std::unique_lock<std::mutex> lock(all.mutex);
  all.returned.wait(lock, [&] { return all.taken == 0 || all.taken + bytes <= kDecodeBudget; });
  all.taken += bytes;
  bytes_ = bytes;
}

DecodeShare::~DecodeShare() {
  if (bytes_ == 0) return;
  Budget& all = budget();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.taken -= bytes_;
  }
  all.returned.notify_one();
}

DecodeShare::DecodeShare(DecodeShare&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}

DecodeShare& DecodeShare::operator=(DecodeShare&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace renorm::data
