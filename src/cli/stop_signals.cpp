#include "cli/stop_signals.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/terminal.h"

namespace renorm::cli {
namespace {

// For functions that run before the sanitizers are initialized.
#define RENORM_UNSANITIZED __attribute__((no_sanitize("address", "undefined")))

RENORM_UNSANITIZED void mask_stop_signals(int how) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  sigaddset(&signals, SIGUSR1);
  sigprocmask(how, &signals, nullptr);
}

// No functions of libraries: they are not initialized yet.
RENORM_UNSANITIZED bool is_same(const char* a, const char* b) {
  for (; *a != '\0' && *a == *b; ++a, ++b) {
  }
  return *a == *b;
}

// Whether the command makes StopSignals.
RENORM_UNSANITIZED bool can_be_stopped(int argc, char** argv) {
  return argc >= 2 && (is_same(argv[1], "train") || is_same(argv[1], "reproduce"));
}

// LibTorch takes most of the start-up time. Signals that arrive meanwhile wait for StopSignals.
RENORM_UNSANITIZED void hold_stop_signals(int argc, char** argv, char** /*environment*/) {
  if (can_be_stopped(argc, argv)) mask_stop_signals(SIG_BLOCK);
}
// Called before the initializers of all shared libraries.
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**,
                                                                             char**) = hold_stop_signals;

// Accessed by the signal handler.
std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may use only lock-free atomics");
const char* stop_notice = "";
const char* line_start = "";

// Errors are ignored: there is no other place to report them.
void write_notice(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) {
  }
}

extern "C" void stop_on_signal(int signal) {
  const int saved_errno = errno;
  if (stop_requested.exchange(true)) _exit(128 + signal);
  if (*stop_notice != '\0') {
    write_notice(line_start);
    write_notice(stop_notice);
    write_notice("\n");
  }
  errno = saved_errno;
}

}  // namespace

StopSignals::StopSignals(const char* notice, AfterStop after) : after_(after) {
  stop_requested = false;
  stop_notice = notice;
  line_start = is_terminal(STDERR_FILENO) ? "\r\033[K" : "";
  for (Handler& handler : handlers_) install(&handler);
  mask_stop_signals(SIG_UNBLOCK);
}

StopSignals::~StopSignals() {
  for (Handler& handler : handlers_) {
    if (after_ == AfterStop::kIgnore) handler.before.sa_handler = SIG_IGN;
    sigaction(handler.signal, &handler.before, nullptr);
  }
}

const std::atomic<bool>* StopSignals::requested() const { return &stop_requested; }

void StopSignals::install(Handler* handler) {
  struct sigaction action = {};
  action.sa_handler = handler->signal == SIGPIPE ? SIG_IGN : stop_on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(handler->signal, &action, &handler->before);
  // Set by nohup.
  const bool hangup_ignored = handler->signal == SIGHUP && handler->before.sa_handler == SIG_IGN;
  if (hangup_ignored) sigaction(SIGHUP, &handler->before, nullptr);
}

}  // namespace renorm::cli
