// Several ranks as threads of one process, each with its own dist::Group.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "../train/support.h"
#include "dist/group.h"

namespace renorm::testing {

class Ranks {
 public:
  explicit Ranks(int size, dist::Group::Options options = {}) : groups_(size) {
    in_parallel([&](int rank) {
      dist::Launch launch;
      launch.rank = rank;
      launch.size = launch.local_size = size;
      launch.job = "test";
      groups_[rank] = std::make_unique<dist::Group>(
          launch, dist::rendezvous_of(launch, "", folder_.path("run")), options);
    });
  }
  // The groups end together, as processes do.
  ~Ranks() {
    in_parallel([&](int rank) { groups_[rank].reset(); });
  }

  int size() const { return static_cast<int>(groups_.size()); }
  dist::Group& group(int rank) { return *groups_[rank]; }

  // Calls work(rank) in one thread per rank. Returns what each threw, or null.
  std::vector<std::exception_ptr> outcomes(const std::function<void(int rank)>& work) {
    std::vector<std::exception_ptr> errors(groups_.size());
    std::vector<std::thread> threads;
    threads.reserve(groups_.size());
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          work(rank);
        } catch (...) {
          errors[rank] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  // The same, where nothing may be thrown.
  void in_parallel(const std::function<void(int rank)>& work) {
    for (const std::exception_ptr& error : outcomes(work)) {
      if (error) ADD_FAILURE() << failure_of(error).message;
    }
  }

 private:
  TemporaryFolder folder_;
  std::vector<std::unique_ptr<dist::Group>> groups_;
};

}  // namespace renorm::testing
