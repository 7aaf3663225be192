// Stopping long work cleanly.
#pragma once

#include <array>
#include <atomic>
#include <csignal>

namespace renorm::cli {

// What the signals do once the object is gone: what they did before, or nothing. An engine that ends all its
// processes sends signals to those that are just ending by themselves, with the right exit code.
enum class AfterStop { kRestore, kIgnore };

// While an object exists, the first SIGINT, SIGTERM, SIGHUP or SIGUSR1 sets a flag and the second ends the
// process. mpirun passes SIGUSR1 on and kills nobody after it. SIGPIPE is ignored. At most one object may
// exist. Signals that arrive before, while the command starts, are held back until it exists.
class StopSignals {
 public:
  // The first signal writes `notice` to standard error, unless it is empty. `notice` must be a string
  // literal.
  explicit StopSignals(const char* notice, AfterStop after = AfterStop::kRestore);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const std::atomic<bool>* requested() const;

 private:
  struct Handler {
    int signal;
    struct sigaction before;
  };
  static void install(Handler* handler);

  AfterStop after_;
  std::array<Handler, 5> handlers_ = {
      {{SIGINT, {}}, {SIGTERM, {}}, {SIGHUP, {}}, {SIGUSR1, {}}, {SIGPIPE, {}}}};
};

}  // namespace renorm::cli
