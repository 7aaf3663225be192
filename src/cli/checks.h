// Checks of flags that the parser lacks.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "base/errors.h"

namespace renorm::cli {

// For unsigned numbers, which the parser lets wrap around. Returns "" or the error.
inline std::string not_negative(const std::string& text) {
  return !text.empty() && text[0] == '-' ? "must not be negative, got " + text : "";
}

// Throws UsageError unless `value` of a flag is from `min` to `max`.
inline void check_count(const char* flag, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return;
  throw UsageError(fmt::format("{} must be a whole number from {} to {}, got {}", flag, min, max, value));
}

// For --threads, where 0 stands for a default. Throws UsageError.
inline void check_threads(int64_t threads) {
  constexpr int64_t kMaxThreads = 1024;
  check_count("--threads", threads, 0, kMaxThreads);
}

}  // namespace renorm::cli
