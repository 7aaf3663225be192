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

// For --threads, where 0 stands for a default. Throws UsageError.
inline void check_threads(int64_t threads) {
  constexpr int64_t kMaxThreads = 1024;
  if (threads >= 0 && threads <= kMaxThreads) return;
  throw UsageError(
      fmt::format("--threads must be a whole number from 0 to {}, got {}", kMaxThreads, threads));
}

}  // namespace renorm::cli
