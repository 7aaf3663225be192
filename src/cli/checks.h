// Checks of flags that the parser does not have.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "base/errors.h"

namespace renorm::cli {

// For unsigned numbers, which the parser lets wrap around. "" if all is well.
inline std::string not_negative(const std::string& text) {
  return !text.empty() && text[0] == '-' ? "must not be negative, got " + text : "";
}

// Of flags where 0 means all CPUs. Throws UsageError.
inline void check_threads(int64_t threads) {
  constexpr int64_t kMostThreads = 1024;
  if (threads >= 0 && threads <= kMostThreads) return;
  throw UsageError(
      fmt::format("--threads must be a whole number from 0 to {}, got {}", kMostThreads, threads));
}

}  // namespace renorm::cli
