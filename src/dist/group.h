// Processes that compute together. Each calls the same functions of its Group in the same order.
#pragma once

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/errors.h"
#include "dist/launch.h"
#include "dist/rendezvous.h"

namespace renorm::dist {

struct Engine;

// Another process ended or did not answer. The message names it: "rank 1 on 'node2' ended".
struct WorkerLost : Interrupted {
  using Interrupted::Interrupted;
};

// All processes end with this code, and rank 0 has the message.
struct ReportedElsewhere : std::runtime_error {
  explicit ReportedElsewhere(int exit_code)
      : std::runtime_error("reported by rank 0"), exit_code(exit_code) {}
  int exit_code;
};

// Whether a meeting or a group that failed left a thread behind. Such a process must end by _exit(): static
// objects that the thread uses would be destroyed otherwise.
bool is_thread_left_behind();

struct Traffic {
  int64_t bytes = 0;  // of the tensors summed
  int64_t sums = 0;
  double seconds = 0.0;  // that calls waited
};

class Group {
 public:
  struct Options {
    std::chrono::milliseconds timeout{30'000};  // for the meeting and for every answer
    const std::atomic<bool>* stop = nullptr;    // once true, the meeting ends with Interrupted
  };

  // Meets the other processes of the launch. Throws OutputError (a port in use, a folder of another user),
  // UsageError, Interrupted (somebody did not come, or `stop`).
  Group(const Launch& launch, const Rendezvous& rendezvous, const Options& options);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return launch_.rank; }
  int size() const { return launch_.size; }
  int local_size() const;  // processes on this machine
  bool leads() const { return launch_.rank == 0; }
  std::string name_of(int rank) const;  // "rank 1 on 'node2'"
  std::string meeting_place() const;    // the folder of the rendezvous; empty if it was an address

  // All calls below throw WorkerLost. After that the group is unusable.

  // Replaces a contiguous tensor by its sum over all processes, with the same bits in each.
  void sum(torch::Tensor tensor);
  // The same in the background. The tensor must not be used until the result has been called.
  using Wait = std::function<void()>;
  Wait start_sum(torch::Tensor tensor);
  // Announces that this tensor will be summed. Optional; all processes announce the same sums in the same
  // order. Gloo's thread spins while a message waits that nobody has announced.
  void expect_sum(const torch::Tensor& tensor);

  // The texts of all processes by rank.
  std::vector<std::string> gather(const std::string& text);
  // The text of rank 0.
  std::string broadcast(const std::string& text);

  // Runs `work`, which may take any time and does not use the group. Returns when all processes are done.
  // If work threw in one of them, all throw that error: rank 0 with its message and the others
  // ReportedElsewhere.
  void together(const std::function<void()>& work);
  // Throws in all processes if `error` is not null in one of them, as together() does.
  void agree(const std::exception_ptr& error);
  // Whether a process was lost while others still work in together().
  bool is_lost() const { return lost_; }
  // Throws WorkerLost if a process of this machine has ended or is stopped. For work between two sums that
  // takes long.
  void check_members();
  // Closes the connections: the others throw WorkerLost. For an error after which this process cannot take
  // part in the sums that the others expect.
  void leave();

  const Traffic& traffic() const { return traffic_; }

 private:
  [[noreturn]] void throw_lost();
  Wait start_ring(torch::Tensor tensor);
  Wait start_exchange(torch::Tensor tensor);  // of two processes
  void share(const std::exception_ptr& error);
  void make_place(const Rendezvous& rendezvous) const;

  Launch launch_;
  std::unique_ptr<MeetingPlace> place_;  // null without a folder
  std::unique_ptr<Engine> engine_;
  std::atomic<bool> lost_{false};
  Traffic traffic_;
};

}  // namespace renorm::dist
