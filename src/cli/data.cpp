// The flags of `renorm data`.
#include <memory>

#include "base/errors.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/help.h"

namespace renorm::cli {
namespace {

constexpr const char* kExamples =
    R"(SPEC is strokes[:OPTIONS], mnist:DIR, fashion-mnist:DIR, cifar10:DIR, cifar100:DIR or folder:DIR.

folder:DIR holds your own images, .jpg, .jpeg or .png in DIR/train/CLASS and DIR/val/CLASS; with
--val-fraction they are in DIR/train/CLASS or DIR/CLASS. Files are opened by --check and --preview only.

Examples:
  renorm data strokes:classes=50,size=32 --preview strokes.png
  renorm data cifar10:/data/cifar-10-batches-bin --check
  renorm data folder:/data/birds --val-fraction 0.1 --check
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
  app->add_option(
         "--val-fraction", options->val_fraction,
         "folder:DIR: share of the training images that becomes the test split; 0: there is a folder val")
      ->type_name("X");
  app->add_option("--image-size", options->image_size,
                  "folder:DIR: pixels a side of what the net is shown; 0: 224")
      ->type_name("N");
  app->add_option("--threads", options->threads, "threads that generate or decode images; 0: all CPUs")
      ->type_name("N");
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] {
            if (options->spec.empty()) {
              throw UsageError("'renorm data' needs a SPEC, for example strokes or cifar10:DIR");
            }
            check_threads(options->threads);
            core().data(*options);
          }};
}

}  // namespace renorm::cli
