// renorm train: a run with its progress, its signals and its result.
#include <fmt/format.h>
#include <signal.h>
#include <torch/version.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/text.h"
#include "cli/core/commands.h"
#include "cli/core/train_progress.h"
#include "cli/terminal.h"
#include "kernels/kernels.h"
#include "train/run.h"

namespace renorm::cli {
namespace {

// What the signal handler may touch.
std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may use only lock-free atomics");
const char* stop_notice = "";

extern "C" void stop_on_signal(int signal) {
  const int saved_errno = errno;
  if (stop_requested.exchange(true)) _exit(128 + signal);
  // If nobody can read it, there is nothing to be done.
  if (write(STDERR_FILENO, stop_notice, std::strlen(stop_notice)) < 0) {
  }
  errno = saved_errno;
}

// While it lives, the first SIGINT, SIGTERM or SIGHUP asks the run to stop and the second ends the process; a
// reader of the output who goes away does not end the run.
class StopSignals {
 public:
  explicit StopSignals(bool quiet) {
    stop_requested = false;
    if (quiet) {
      stop_notice = "";
    } else if (is_terminal(STDERR_FILENO)) {
      stop_notice = "\r\033[Kstopping after this step; again to end at once\n";
    } else {
      stop_notice = "stopping after this step; again to end at once\n";
    }
    for (Handler& handler : handlers_) install(&handler);
  }
  ~StopSignals() {
    for (const Handler& handler : handlers_) sigaction(handler.signal, &handler.before, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  struct Handler {
    int signal;
    struct sigaction before;
  };

  static void install(Handler* handler) {
    struct sigaction action = {};
    action.sa_handler = handler->signal == SIGPIPE ? SIG_IGN : stop_on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(handler->signal, &action, &handler->before);
    // nohup asks for it.
    const bool hangup_ignored = handler->signal == SIGHUP && handler->before.sa_handler == SIG_IGN;
    if (hangup_ignored) sigaction(SIGHUP, &handler->before, nullptr);
  }

  std::array<Handler, 4> handlers_ = {{{SIGINT, {}}, {SIGTERM, {}}, {SIGHUP, {}}, {SIGPIPE, {}}}};
};

train::RunRequest request_of(const TrainOptions& options) {
  train::RunRequest request;
  request.config = options.config;
  request.given = options.given;
  request.folder = options.out;
  request.resume = options.resume;
  request.versions = {
      {"renorm", RENORM_VERSION}, {"libtorch", TORCH_VERSION}, {"simd", kernels::simd_target()}};
  request.stop = &stop_requested;
  return request;
}

void print_result(const train::RunResult& result, const std::string& folder, bool averages) {
  const std::string dir = printable(folder);
  fmt::print(
      "{} accuracy  {} %{}\n", result.last.split, shortest(result.last.averaged.accuracy),
      averages ? fmt::format(" with averaged weights, {} % with raw ones", shortest(result.last.raw.accuracy))
               : "");
  fmt::print("best           {} % at step {}\n", shortest(result.best_accuracy), result.best_step);
  fmt::print("time           {} for {} steps\n", duration_text(result.seconds), result.steps);
  fmt::print("files          {0}/metrics.jsonl, {0}/summary.csv, {0}/checkpoints\n", dir);
  fmt::print("evaluate       renorm eval {}\n", dir);
}

}  // namespace

void run_train(const TrainOptions& options) {
  const StopSignals signals(options.quiet);
  train::RunResult result;
  bool averages = false;
  {
    TrainProgress progress(options.out, options.quiet);
    result = train::run(request_of(options), progress);
    averages = progress.averages();
  }
  print_result(result, options.out, averages);
}

}  // namespace renorm::cli
