// The flags of `renorm data`.
#include <memory>

#include "base/errors.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/help.h"

namespace renorm::cli {
namespace {

constexpr const char* kExamples =
    R"(SPEC is strokes[:OPTIONS], mnist:DIR, fashion-mnist:DIR, cifar10:DIR or cifar100:DIR.

Examples:
  renorm data strokes:classes=50,size=32 --preview strokes.png
  renorm data cifar10:/data/cifar-10-batches-bin --check
)";

}  // namespace

Command add_data(CLI::App& program) {
  CLI::App* app = program.add_subcommand("data", "Describe, check or preview a data set");
  const auto options = std::make_shared<DataOptions>();
  app->add_option("SPEC", options->spec, "data, as in 'renorm train --data'");
  app->add_flag("--check", options->check, "read all of it and name what is wrong");
  app->add_option("--preview", options->preview, "write a contact sheet to look at")->type_name("FILE.png");
  app->add_option("--preview-classes", options->preview_classes, "rows of the contact sheet")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--preview-images", options->preview_images, "images of each class in it")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--threads", options->threads, "threads that generate data; 0: all CPUs")->type_name("N");
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] {
            if (options->spec.empty()) {
              throw UsageError("'renorm data' needs a SPEC, for example strokes or cifar10:DIR");
            }
            core().data(*options);
          }};
}

}  // namespace renorm::cli
