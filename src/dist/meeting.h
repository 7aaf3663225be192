// The engine of a group, and how the processes of a launch meet.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "dist/launch.h"
#include "dist/rendezvous.h"

namespace renorm::dist {

// Whether a thread that waits for a store was left behind.
extern std::atomic<bool> thread_left_behind;

// A sum of two processes: what the other one sends.
struct Exchange {
  int number = 0;
  torch::Tensor other;
  c10::intrusive_ptr<c10d::Work> received;
};

// The state that the processes share once they have met.
struct Engine {
  Engine() = default;
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The ranks that have ended or do not answer.
  std::vector<int> lost_ranks(int own) const;
  // The ranks that have ended or are stopped, as far as this machine can see now.
  std::vector<int> gone_here() const;

  std::string store_path;  // of a store in a folder; empty for an address
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::vector<ProcessName> members;
  std::map<const void*, Exchange> expected;  // by the data of the tensor to be summed
  int last_exchange = 0;
};

// The steps of a meeting. They run in a thread, because stores wait in ways that end neither at a timeout nor
// at a signal. A thread that is left behind ends with the process.
class Meeting {
 public:
  // `store_path` is empty for an address.
  Meeting(const Launch& launch, const Rendezvous& rendezvous, const std::string& store_path,
          std::chrono::milliseconds timeout);

  // To be called by the thread.
  void run();

  // Throws what run() threw, or Interrupted if it takes too long, a process ends, or `stop` becomes true. In
  // the latter cases the thread is left behind.
  std::unique_ptr<Engine> result(const std::atomic<bool>* stop);
  bool is_done() const { return done_; }

 private:
  using Clock = std::chrono::steady_clock;

  bool listens() const { return launch_.rank == 0 && !launch_.engine_listens; }
  [[noreturn]] void throw_missing() const;
  void check_present() const;
  void open_store();
  void meet();
  bool note_present(c10d::Store& store);
  void connect();

  Launch launch_;
  Rendezvous rendezvous_;
  std::chrono::milliseconds timeout_;
  Clock::time_point end_;
  std::unique_ptr<Engine> engine_ = std::make_unique<Engine>();
  mutable std::mutex mutex_;
  std::vector<int> missing_;                          // ranks that have not come yet
  std::vector<std::pair<int, ProcessName>> present_;  // and those that have
  std::exception_ptr error_;
  std::atomic<bool> done_{false};
};

}  // namespace renorm::dist
