// The flags of `renorm bench step`.
#include <fmt/format.h>

#include <memory>

#include "base/errors.h"
#include "cli/commands.h"
#include "cli/core.h"

namespace renorm::cli {
namespace {

constexpr int64_t kMost = 1000000;
constexpr int64_t kMostThreads = 1024;

void check_count(const char* flag, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return;
  throw UsageError(fmt::format("{} must be a whole number from 1 to {}, got {}", flag, most, value));
}

void run(const BenchStepOptions& options) {
  check_count("--minibatch", options.minibatch, kMost);
  check_count("--workers", options.workers, kMost);
  check_count("--threads", options.threads, kMostThreads);
  check_count("--steps", options.steps, kMost);
  core().bench_step(options);
}

}  // namespace

Command add_bench_step(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand(
      "step", "A training step with our layer and with LibTorch's, in turn, and where its time goes");
  const auto options = std::make_shared<BenchStepOptions>();
  app->add_option("--model", options->model, "model, as in 'renorm train'; 'renorm models' lists them")
      ->type_name("SPEC")
      ->capture_default_str();
  app->add_option("--data", options->data, "data, as in 'renorm train'")
      ->type_name("SPEC")
      ->capture_default_str();
  app->add_option("--minibatch", options->minibatch, "images that are normalised together")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--workers", options->workers, "minibatches a step")->type_name("N")->capture_default_str();
  app->add_option("--threads", options->threads, "threads")->type_name("N")->capture_default_str();
  app->add_option("--steps", options->steps, "timed steps of each")->type_name("N")->capture_default_str();
  app->add_option("--json", options->json, "also write every figure to this file")->type_name("FILE");
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
