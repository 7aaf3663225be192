// Stopping long work cleanly.
#pragma once

#include <array>
#include <atomic>
#include <csignal>

namespace renorm::cli {

// While an object exists, the first SIGINT, SIGTERM or SIGHUP sets a flag and the second ends the process.
// SIGPIPE is ignored. At most one object may exist. Of `renorm train`, signals that arrive before are held
// back until it exists.
class StopSignals {
 public:
  // The first signal writes `notice` to standard error, unless it is empty. `notice` must be a string
  // literal.
  explicit StopSignals(const char* notice);
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

  std::array<Handler, 4> handlers_ = {{{SIGINT, {}}, {SIGTERM, {}}, {SIGHUP, {}}, {SIGPIPE, {}}}};
};

}  // namespace renorm::cli
