// renorm train: a run with its progress, its signals and its result.
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

#include "base/errors.h"
#include "base/text.h"
#include "base/timing.h"
#include "cli/core/commands.h"
#include "cli/core/tensor_memory.h"
#include "cli/core/train_progress.h"
#include "cli/stop_signals.h"
#include "data/dataset.h"
#include "data/strokes.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "train/run.h"

namespace renorm::cli {
namespace {

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
  check_known("--model", split_spec(config.model).first, models::model_kinds());
  models::check_model(config.model);
  const auto [data, settings] = split_spec(config.data);
  check_known("--data", data, data::dataset_kinds());
  if (data == "strokes") data::parse_strokes(settings);
}

train::RunRequest request_of(const TrainOptions& options, const std::atomic<bool>* stop) {
  train::RunRequest request;
  request.config = options.config;
  request.given = options.given;
  request.folder = options.out;
  request.resume = options.resume;
  request.versions = {
      {"renorm", RENORM_VERSION}, {"libtorch", TORCH_VERSION}, {"simd", kernels::simd_target()}};
  request.stop = stop;
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
  fmt::print("evaluate       renorm eval {}\n", printable(shell_quoted(folder)));
}

}  // namespace

void run_train(const TrainOptions& options) {
  check_specs(options.config);
  reuse_tensor_memory();
  const StopSignals signals(options.quiet ? "" : "stopping after this step; again to end at once");
  train::RunResult result;
  bool averages = false;
  {
    TrainProgress progress(options.out, options.quiet);
    result = train::run(request_of(options, signals.requested()), progress);
    averages = progress.averages();
  }
  print_result(result, options.out, averages);
}

}  // namespace renorm::cli
