// How many random cases a test runs: all of them, or a fraction under sanitizers, which are slow.
#pragma once

#include <cstdint>

namespace renorm::test {

#if defined(__SANITIZE_THREAD__)
constexpr int64_t kCaseDivisor = 20;
#elif defined(__SANITIZE_ADDRESS__)
constexpr int64_t kCaseDivisor = 4;
#else
constexpr int64_t kCaseDivisor = 1;
#endif

constexpr int64_t case_count(int64_t full) { return (full + kCaseDivisor - 1) / kCaseDivisor; }

}  // namespace renorm::test
