#include "data/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <mutex>
#include <system_error>
#include <vector>

namespace renorm::data {
namespace {

constexpr int64_t kMaxThreads = 256;

struct Work {
  int64_t count;
  const std::function<void(int64_t)>& use;
  std::atomic<int64_t> next{0};
  std::mutex mutex{};     // for the two below
  int64_t failed{count};  // the lowest number that did
  std::exception_ptr error{};
};

void take_share(Work& work) {
  for (int64_t i = work.next++; i < work.count; i = work.next++) {
    try {
      work.use(i);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(work.mutex);
      if (i < work.failed) {
        work.failed = i;
        work.error = std::current_exception();
      }
      work.next = work.count;
    }
  }
}

}  // namespace

void for_each_number(int64_t count, int threads, const std::function<void(int64_t)>& use) {
  Work work{count, use};
  {
    std::vector<std::future<void>> helpers;  // their destructors wait
    const int64_t wanted = std::min({int64_t{threads}, count, kMaxThreads});
    for (int64_t i = 1; i < wanted; ++i) {
      try {
        helpers.push_back(std::async(std::launch::async, [&work] { take_share(work); }));
      } catch (const std::system_error&) {
        break;  // no more threads available: use fewer
      }
    }
    take_share(work);
  }
  if (work.error) std::rethrow_exception(work.error);
}

}  // namespace renorm::data
