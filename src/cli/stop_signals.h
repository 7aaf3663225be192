// Stopping long work with care.
#pragma once

#include <array>
#include <atomic>
#include <csignal>

namespace renorm::cli {

// While it lives, the first SIGINT, SIGTERM or SIGHUP sets a flag and the second ends the process; a reader
// of the output who goes away does not end the work. One at a time.
class StopSignals {
 public:
  // The first signal says `notice`, a text that lives as long as the program, on standard error; "" for
  // nothing.
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
