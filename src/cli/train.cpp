// renorm train: one flag per setting of a run, its progress, its signals and its result.
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "base/timing.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/stop_signals.h"
#include "cli/tensor_memory.h"
#include "cli/train_progress.h"
#include "data/dataset.h"
#include "dist/group.h"
#include "dist/launch.h"
#include "dist/rendezvous.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "train/config_file.h"
#include "train/run.h"
#include "train/settings.h"

namespace renorm::cli {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;
constexpr int64_t kMaxTimeout = 86'400;  // seconds
constexpr const char* kNeedsOut = "'renorm train' needs --out DIR, the folder for the run's files";
constexpr const char* kExamples = R"(Examples:
  renorm train --out runs/iid --steps 2000 --workers 4 --minibatch 32
  renorm train --out runs/pairs --sampler labels:16x2 --norm batchnorm \
      --config base.toml
  renorm train --out runs/photos --data folder:photos --model resnet18 --epochs 30
  mpirun -n 4 renorm train --out runs/four --workers 4

Flags override --config, which overrides the defaults. --NAME=false turns off a switch that a config file
turns on. Processes started by mpirun, srun or torchrun share the workers of each step. A run that is stopped by SIGTERM or Ctrl-C saves a checkpoint; --resume continues it exactly.
)";

struct Flags {
  train::RunRequest request;  // folder and resume; config and given once the flags are resolved
  bool quiet = false;
  std::string config_file;
  std::string rendezvous;
  int64_t dist_timeout = 30;                                                   // seconds
  std::vector<std::pair<const train::Setting*, const CLI::Option*>> settings;  // options live in the parser
};

const CLI::Option* add_setting(CLI::App* app, const train::Setting& setting) {
  const std::string name = "--" + setting.name;
  if (setting.type == train::Setting::Type::kSwitch) {
    return app->add_flag(name, setting.help)->group(setting.group);
  }
  CLI::Option* option = app->add_option(name, setting.help)->type_name(setting.placeholder);
  // 0 stands for a computed value or for nothing; see the help text.
  const std::string preset = setting.get(train::Config{});
  if (preset != "0") option->default_str(preset);
  return option->group(setting.group);
}

bool is_given(const Flags& flags, const std::string& name) {
  return std::any_of(flags.settings.begin(), flags.settings.end(), [&](const auto& entry) {
    return entry.first->name == name && entry.second->count() > 0;
  });
}

// The length is given in steps or in epochs: a flag of one kind overrides a file that has the other.
void override_length(const Flags& flags, train::RunRequest* request) {
  for (const auto& [flag, other] : {std::pair{"steps", "epochs"}, std::pair{"epochs", "steps"}}) {
    if (!is_given(flags, flag) || is_given(flags, other)) continue;
    train::find_setting(other).set(request->config, "0");
    auto& given = request->given;
    given.erase(std::remove(given.begin(), given.end(), other), given.end());
  }
}

// The ranges of the settings are checked by train::run.
train::RunRequest request_of(const Flags& flags) {
  train::RunRequest request = flags.request;
  if (request.folder.empty()) {
    throw UsageError(kNeedsOut);
  }
  if (!flags.config_file.empty()) {
    const std::string text = read_file(flags.config_file, kMaxConfigBytes);
    request.given = train::read_toml(text, flags.config_file, &request.config);
  }
  override_length(flags, &request);
  for (const auto& [setting, option] : flags.settings) {
    if (option->count() == 0) continue;
    setting->set(request.config, option->results().back());
    request.given.push_back(setting->name);
  }
  request.versions = {
      {"renorm", RENORM_VERSION}, {"libtorch", TORCH_VERSION}, {"simd", kernels::simd_target()}};
  return request;
}

// Before a folder is made and data is generated.
void check_specs(const train::Config& config) {
  models::check_model(config.model);
  data::known_sizes(config.data);
}

void print_result(const train::RunResult& result, const std::string& folder, bool averages) {
  const std::string dir = printable(folder);
  const std::string what = result.last.recall_at_5 ? "recall@1" : result.last.split + " accuracy";
  fmt::print("{:<13}  {:.2f} %{}\n", what, result.last.averaged.accuracy,
             averages
                 ? fmt::format(" with averaged weights, {:.2f} % with raw ones", result.last.raw.accuracy)
                 : "");
  fmt::print("best           {:.2f} % at step {}\n", result.best_accuracy, result.best_step);
  fmt::print("time           {} for {} steps\n", duration_text(result.seconds), result.steps);
  fmt::print("files          {0}/metrics.jsonl, {0}/summary.csv, {0}/checkpoints\n", dir);
  fmt::print("evaluate       renorm eval {}\n", printable(shell_quoted(folder)));
}

// The request, or the error in it, which all processes of a launch report as one.
struct Parsed {
  train::RunRequest request;
  std::exception_ptr error;
};

Parsed parsed_request(const Flags& flags) {
  Parsed parsed;
  try {
    parsed.request = request_of(flags);
    check_specs(parsed.request.config);
  } catch (const std::exception&) {
    parsed.error = std::current_exception();
  }
  return parsed;
}

// On one machine all processes have the same flags, and rank 0 reports what is wrong with them.
dist::Rendezvous checked_rendezvous(const Flags& flags, const dist::Launch& launch) try {
  check_count("--dist-timeout", flags.dist_timeout, 2, kMaxTimeout);
  if (flags.request.folder.empty()) throw UsageError(kNeedsOut);
  return dist::rendezvous_of(launch, flags.rendezvous, flags.request.folder);
} catch (const UsageError&) {
  if (launch.rank == 0 || !launch.is_on_one_machine()) throw;
  throw dist::ReportedElsewhere(kExitUsage);
}

// Null if this process is alone.
std::unique_ptr<dist::Group> group_of(const Flags& flags, const dist::Launch& launch,
                                      const std::atomic<bool>* stop) {
  if (launch.is_alone()) return nullptr;
  dist::Group::Options options;
  options.timeout = std::chrono::seconds(flags.dist_timeout);
  options.stop = stop;
  return std::make_unique<dist::Group>(launch, checked_rendezvous(flags, launch), options);
}

void run(const Flags& flags) {
  const dist::Launch launch = dist::launch_of_process();
  const bool leads = launch.rank == 0;
  // First, so that a signal ends the program with the code for an interrupted run.
  const StopSignals signals(flags.quiet || !leads ? "" : "stopping after this step; again to end at once",
                            launch.is_alone() ? AfterStop::kRestore : AfterStop::kIgnore);
  Parsed parsed = parsed_request(flags);
  const std::unique_ptr<dist::Group> group = group_of(flags, launch, signals.requested());
  if (group) group->agree(parsed.error);
  if (parsed.error) std::rethrow_exception(parsed.error);
  train::RunRequest& request = parsed.request;
  reuse_tensor_memory();
  request.stop = signals.requested();
  request.group = group.get();
  if (group) request.threads = dist::threads_per_process(group->local_size());
  if (!leads) {
    train::Observer silent;
    try {
      train::run(request, silent);
    } catch (const NonFiniteError&) {
      throw dist::ReportedElsewhere(kExitNotFinite);  // sums over all processes diverge in all of them
    }
    return;
  }
  train::RunResult result;
  bool averages = false;
  {
    TrainProgress progress(request.folder, flags.quiet, launch.engine);
    result = train::run(request, progress);
    averages = progress.averages();
  }
  print_result(result, request.folder, averages);
}

}  // namespace

Command add_train(CLI::App& program) {
  CLI::App* app = program.add_subcommand("train", "Train an image classifier with batchnorm or Batch Renorm");
  const auto flags = std::make_shared<Flags>();
  constexpr const char* kGroup = "Folder and config";
  app->add_option("--out", flags->request.folder, "folder for the run's files (required)")
      ->type_name("DIR")
      ->group(kGroup);
  app->add_flag("--resume", flags->request.resume,
                "continue the run in DIR; with settings, start it if there is none")
      ->group(kGroup);
  app->add_option("--config", flags->config_file, "TOML file with settings by the flags' names; flags win")
      ->type_name("FILE")
      ->group(kGroup);
  app->add_flag("--force-bf16", flags->request.force_bf16,
                "allow --dtype bf16 even where it costs more than it saves ('renorm doctor' measures it)")
      ->group(kGroup);
  app->add_flag("--quiet", flags->quiet, "print warnings and the result only")->group(kGroup);
  constexpr const char* kProcesses = "Several processes";
  app->add_option(
         "--rendezvous", flags->rendezvous,
         "where processes of several machines meet: tcp://HOST:PORT of rank 0, or a folder that all share")
      ->type_name("PLACE")
      ->group(kProcesses);
  app->add_option("--dist-timeout", flags->dist_timeout,
                  "seconds without an answer after which another process counts as lost")
      ->type_name("N")
      ->capture_default_str()
      ->group(kProcesses);
  for (const train::Setting& setting : train::settings()) {
    flags->settings.emplace_back(&setting, add_setting(app, setting));
  }
  app->footer(kExamples + ("\n" + exit_codes_text()));
  // The names that timm and torchvision use.
  return {app,
          [flags] { run(*flags); },
          {{"--batch-size", "--minibatch"},
           {"--clip-grad", "--clip-gradient"},
           {"--data-dir", "--data"},
           {"--data-path", "--data"},
           {"--dataset", "--data"},
           {"--learning-rate", "--lr"},
           {"--log-interval", "--log-every"},
           {"--lr-scheduler", "--lr-schedule"},
           {"--lr-warmup-epochs", "--warmup"},
           {"--model-ema-decay", "--ema-decay"},
           {"--opt", "--optimizer"},
           {"--opt-eps", "--optimizer-eps"},
           {"--output", "--out"},
           {"--output-dir", "--out"},
           {"--sched", "--lr-schedule"},
           {"--smoothing", "--label-smoothing"},
           {"--warmup-epochs", "--warmup"},
           {"--wd", "--weight-decay"}}};
}

}  // namespace renorm::cli
