// renorm train: a run with its progress, its signals and its result.
#include <fmt/format.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/errors.h"
#include "base/names.h"
#include "base/text.h"
#include "cli/core/commands.h"
#include "cli/core/train_progress.h"
#include "cli/terminal.h"
#include "data/dataset.h"
#include "data/strokes.h"
#include "kernels/kernels.h"
#include "models/convnet_spec.h"
#include "models/model.h"
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

template <typename Kind>
void check_known(const std::string& flag, const std::string& name, const std::vector<Kind>& kinds) {
  std::vector<std::string> names;
  names.reserve(kinds.size());
  for (const Kind& kind : kinds) names.push_back(kind.name);
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  throw UsageError(fmt::format("{} does not know '{}'{}", flag, printable(name), name_hint(name, names)));
}

// What can be seen to be wrong before a folder is made and data is generated.
void check_specs(const train::Config& config) {
  const auto [model, layers] = split_spec(config.model);
  check_known("--model", model, models::model_kinds());
  if (model == "convnet" && !layers.empty()) models::parse_convnet(layers);
  const auto [data, settings] = split_spec(config.data);
  check_known("--data", data, data::dataset_kinds());
  if (data == "strokes") data::parse_strokes(settings);
}

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

// A name as a shell reads it.
std::string quoted(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("/._-+,:=@%", c) != nullptr;
  });
  if (plain) return name;
  std::string text = "'";
  for (const char c : name) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
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
  fmt::print("evaluate       renorm eval {}\n", printable(quoted(folder)));
}

}  // namespace

void run_train(const TrainOptions& options) {
  check_specs(options.config);
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
