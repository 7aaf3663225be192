#include "data/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace renorm::data::testing {
namespace {

TEST(ForEachNumber, UsesEachOnce) {
  for (const int threads : {0, 1, 2, 7, 100000}) {
    std::vector<std::atomic<int>> used(101);
    for_each_number(101, threads, [&](int64_t i) { ++used[static_cast<size_t>(i)]; });
    for (const std::atomic<int>& times : used) EXPECT_EQ(times, 1) << threads;
  }
  for_each_number(0, 3, [](int64_t) { FAIL(); });
}

TEST(ForEachNumber, RunsAtOnceOnSeveralThreads) {
  std::atomic<int> inside{0};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for_each_number(2, 2, [&](int64_t) {
    ++inside;
    while (inside < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 2);
  EXPECT_LT(std::chrono::steady_clock::now(), deadline);
}

// The lower of the two waits until the higher one has thrown.
TEST(ForEachNumber, TheLowestErrorIsRethrown) {
  std::atomic<bool> thrown{false};
  std::atomic<int> begun{0};
  const auto use = [&](int64_t i) {
    ++begun;
    if (i == 1) {
      thrown = true;
      throw std::runtime_error("1");
    }
    while (i == 0 && !thrown) std::this_thread::yield();
    if (i == 0) throw std::runtime_error("0");
  };
  try {
    for_each_number(1000, 2, use);
    ADD_FAILURE() << "no error";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()), "0");
  }
  EXPECT_LT(begun, 1000);
}

}  // namespace
}  // namespace renorm::data::testing
