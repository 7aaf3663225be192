// The flags of `renorm export`.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/help.h"
#include "export/model_card.h"

namespace renorm::cli {
namespace {

constexpr const char* kExamples =
    R"(FILE says by its end what is written, both with classes and preprocessing inside:
  .safetensors  the weights by name, for 'renorm predict' and other programs
  .pt           TorchScript for LibTorch and PyTorch, which need no renorm to
                open it: model = torch.jit.load("FILE.pt")
Its input are float images [n, channels, height, width], (byte / 255 - mean) / std; its output are logits. What
was written is read back and compared with the run's own model on random images.

Examples:
  renorm export runs/first --to first.safetensors
  renorm export runs/first --to first.pt --fold --checkpoint best
)";

void run(const ExportOptions& options) {
  if (options.run.empty()) throw UsageError("'renorm export' needs DIR, the folder of a run");
  if (options.to.empty()) throw UsageError("'renorm export' needs --to FILE.safetensors or --to FILE.pt");
  train::model_format(options.to);
  std::error_code error;
  if (!options.force && std::filesystem::exists(options.to, error)) {
    throw UsageError(fmt::format("'{}' exists already; choose another --to, or replace it with --force",
                                 printable(options.to)));
  }
  check_writable(options.to);
  core().export_model(options);
}

}  // namespace

Command add_export(CLI::App& program) {
  CLI::App* app = program.add_subcommand("export", "Write the model of a run to one file for use elsewhere");
  const auto options = std::make_shared<ExportOptions>();
  app->add_option("DIR", options->run, "folder of a run, the --out of 'renorm train'");
  app->add_option("--to", options->to, "the file, which ends in .safetensors or .pt")->type_name("FILE");
  app->add_flag("--fold", options->fold,
                "fold the norms into the convolutions: the same outputs, in less time");
  app->add_option("--checkpoint", options->checkpoint, "last, best or step-N")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_flag("--raw", options->raw, "the weights themselves instead of their average");
  app->add_flag("--force", options->force, "replace a file that is there");
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
