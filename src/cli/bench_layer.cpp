// The flags of `renorm bench layer`.
#include <memory>

#include "cli/commands.h"
#include "cli/core.h"

namespace renorm::cli {

Command add_bench_layer(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand(
      "layer", "Our layer against LibTorch's batchnorm, oneDNN, tensor operations and a plain copy");
  const auto options = std::make_shared<BenchLayerOptions>();
  app->add_flag("--quick", options->quick, "fewer shapes and rounds: under a minute instead of about six");
  app->add_flag(
      "--fresh-memory", options->fresh_memory,
      "give freed memory back to the system, as glibc does by default, and so measure its page faults too");
  app->add_option("--threads", options->threads, "threads; from 2, one thread is measured beside them")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--shapes", options->shapes,
                  "other shapes: NxCxHxW (as nchw and nhwc) or NxC (dense), separated by commas")
      ->type_name("LIST");
  app->add_option("--json", options->json, "also write every figure to this file")->type_name("FILE");
  return {app, [options] { core().bench_layer(*options); }};
}

}  // namespace renorm::cli
