// Numbered tasks on several threads. LibTorch's own threads are busy with the net meanwhile.
#pragma once

#include <cstdint>
#include <functional>

namespace renorm::data {

// Calls use(i) once for each 0 <= i < count, on this thread and at most threads - 1 others, and returns when
// all are done. After an exception no more are begun, and the exception of the lowest number is rethrown:
// numbers are taken in order, so it is the same one for any number of threads.
void for_each_number(int64_t count, int threads, const std::function<void(int64_t)>& use);

}  // namespace renorm::data
