// Memory of the images that the threads of this process decode at once.
#pragma once

#include <cstdint>

namespace renorm::data {

// 537 MB: what all large images may take at once.
constexpr int64_t kDecodeBudget = int64_t{1} << 29;
// 17 MB, an image of 5 million pixels: what takes less is not counted.
constexpr int64_t kUncountedBytes = int64_t{1} << 24;

// The part of the budget that an image takes while it is decoded and used.
class DecodeShare {
 public:
  DecodeShare() = default;  // of a small image: nothing
  // Waits until `bytes` are left of the budget or nothing is taken, so an image above the budget is decoded
  // alone. Returns at once, without a lock, for at most kUncountedBytes. A thread that has a share must not
  // wait for another.
  explicit DecodeShare(int64_t bytes);
  ~DecodeShare();
  DecodeShare(DecodeShare&& other) noexcept;
  DecodeShare& operator=(DecodeShare&& other) noexcept;

 private:
  int64_t bytes_ = 0;
};

}  // namespace renorm::data
