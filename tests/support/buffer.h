// Memory for kernel arguments that detects reads and writes outside its bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "support/numbers.h"

namespace renorm::test {

// `count` values that start `misalignment` values after a 64-byte boundary, between two canaries.
// Every byte is 0xFF at first, which is NaN in every type, so that a value that a kernel did not write is
// noticed. An input (kInput) has no canary behind it, so that AddressSanitizer detects reads past the end.
template <typename T>
class Buffer {
 public:
  enum class Use { kInput, kOutput };

  Buffer() = default;

  Buffer(int64_t count, int64_t misalignment, Use use) : count_(count), misalignment_(misalignment) {
    const size_t front = kCanary + static_cast<size_t>(misalignment) * sizeof(T);
    const size_t values = static_cast<size_t>(count) * sizeof(T);
    back_ = use == Use::kOutput ? kCanary : 0;
    bytes_.reset(
        static_cast<unsigned char*>(::operator new(front + values + back_, std::align_val_t(kAlignment))));
    front_ = front;
    std::memset(bytes_.get(), kCanaryByte, front + values + back_);
    std::memset(data(), 0xFF, values);
  }

  // Null for an absent buffer, as kernels expect.
  T* data() { return bytes_ == nullptr ? nullptr : reinterpret_cast<T*>(bytes_.get() + front_); }
  const T* data() const {
    return bytes_ == nullptr ? nullptr : reinterpret_cast<const T*>(bytes_.get() + front_);
  }
  T& operator[](int64_t i) { return data()[i]; }
  const T& operator[](int64_t i) const { return data()[i]; }

  int64_t size() const { return count_; }
  int64_t misalignment() const { return misalignment_; }
  bool absent() const { return bytes_ == nullptr; }

  // Whether nothing was written before or after the values.
  bool intact() const {
    if (absent()) return true;
    const unsigned char* behind = bytes_.get() + front_ + static_cast<size_t>(count_) * sizeof(T);
    return all_canary(bytes_.get(), front_) && all_canary(behind, back_);
  }

  void forget() { std::memset(data(), 0xFF, static_cast<size_t>(count_) * sizeof(T)); }

 private:
  static constexpr size_t kAlignment = 64;
  static constexpr size_t kCanary = 128;
  static constexpr unsigned char kCanaryByte = 0xA5;

  struct Free {
    void operator()(unsigned char* bytes) const { ::operator delete(bytes, std::align_val_t(kAlignment)); }
  };

  static bool all_canary(const unsigned char* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (bytes[i] != kCanaryByte) return false;
    }
    return true;
  }

  std::unique_ptr<unsigned char, Free> bytes_;
  int64_t count_ = 0;
  int64_t misalignment_ = 0;
  size_t front_ = 0;
  size_t back_ = 0;
};

// The same values in double; absent if the buffer is.
template <typename T>
Buffer<double> widen(const Buffer<T>& buffer) {
  if (buffer.absent()) return {};
  Buffer<double> wide(buffer.size(), 0, Buffer<double>::Use::kOutput);
  for (int64_t i = 0; i < buffer.size(); ++i) wide[i] = widen(buffer[i]);
  return wide;
}

}  // namespace renorm::test
