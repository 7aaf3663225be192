// The flags of `renorm bench step`.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/errors.h"
#include "base/text.h"
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

void run(const bench::StepOptions& options) {
  check_count("--minibatch", options.minibatch, kMost);
  check_count("--workers", options.workers, kMost);
  check_count("--threads", options.threads, kMostThreads);
  if (options.steps != 0) check_count("--steps", options.steps, kMost);
  const std::vector<std::string> formats = {"nchw", "channels-last", "both"};
  if (std::find(formats.begin(), formats.end(), options.memory_format) == formats.end()) {
    throw UsageError(fmt::format("--memory-format does not know '{}'{}", printable(options.memory_format),
                                 name_hint(options.memory_format, formats)));
  }
  const std::vector<std::string> norms(std::begin(bench::kStepNorms), std::end(bench::kStepNorms));
  for (const std::string& norm : options.norms) {
    if (std::find(norms.begin(), norms.end(), norm) != norms.end()) continue;
    throw UsageError(fmt::format("--norms does not know '{}'{}", printable(norm), name_hint(norm, norms)));
  }
  core().bench_step(options);
}

}  // namespace

Command add_bench_step(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand(
      "step", "A training step with our layer, with LibTorch's and with tensor operations, in turn");
  const auto options = std::make_shared<bench::StepOptions>();
  app->add_option("--model", options->model, "model, as in 'renorm train'; 'renorm models' lists them")
      ->type_name("SPEC")
      ->capture_default_str();
  app->add_option(
         "--data", options->data,
         "data, as in 'renorm train', or random: images of random bytes in the size that the model is "
         "made for [strokes; random for resnet18, resnet50 and inception-v3]; pictures of a folder are "
         "loaded ahead while others are timed")
      ->type_name("SPEC");
  app->add_option("--memory-format", options->memory_format, "nchw, channels-last or both")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--norms", options->norms,
                  "comma-separated: renorm, batchnorm, tensor-ops; native always takes part [all]")
      ->type_name("NAMES")
      ->delimiter(',');
  app->add_option("--minibatch", options->minibatch, "images that are normalised together")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--workers", options->workers, "minibatches a step")->type_name("N")->capture_default_str();
  app->add_option("--threads", options->threads, "threads")->type_name("N")->capture_default_str();
  app->add_option("--steps", options->steps, "timed steps of each; 0: 30, or 5 of the nets for large images")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--json", options->json, "also write every figure to this file")->type_name("FILE");
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
