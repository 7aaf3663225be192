// The flags of `renorm predict`.
#include <fmt/format.h>

#include <memory>

#include "base/errors.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/help.h"

namespace renorm::cli {
namespace {

constexpr const char* kExamples =
    R"(Pictures are turned upright, resized, cut to the middle and standardised as the model's test images were; for
models of grey images they are made grey. One that cannot be read is reported, and the others are predicted; the
exit code is then 65, or 66 if none but missing files were bad.

Examples:
  renorm predict first.pt cat.jpg dog.png
  renorm predict runs/first --checkpoint best --top 1 --json photos/*.jpg
)";

void run(const PredictOptions& options) {
  if (options.model.empty()) {
    throw UsageError("'renorm predict' needs FILE, an exported model or the folder of a run");
  }
  if (options.images.empty()) {
    throw UsageError("'renorm predict' needs IMAGE..., one JPEG or PNG file or more");
  }
  if (options.top < 1) throw UsageError(fmt::format("--top must be at least 1, got {}", options.top));
  check_threads(options.threads);
  core().predict(options);
}

}  // namespace

Command add_predict(CLI::App& program) {
  CLI::App* app = program.add_subcommand("predict", "Say what a model sees on images");
  const auto options = std::make_shared<PredictOptions>();
  app->add_option("FILE", options->model,
                  "model of 'renorm export' (.safetensors or .pt), or the folder of a run");
  app->add_option("IMAGE...", options->images, "JPEG or PNG files");
  app->add_option("--top", options->top, "classes shown for each image, the likeliest first")
      ->type_name("N")
      ->capture_default_str();
  app->add_flag("--json", options->json, "print one JSON document");
  app->add_option("--threads", options->threads, "threads; 0: all CPUs, or as many as the run had")
      ->type_name("N");
  app->add_option("--checkpoint", options->checkpoint, "of a run: last, best or step-N; without it, last")
      ->type_name("NAME");
  app->add_flag("--raw", options->raw, "of a run: the weights themselves instead of their average");
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
