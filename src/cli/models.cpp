// The flags of `renorm models`.
#include <memory>

#include "cli/commands.h"
#include "cli/core.h"

namespace renorm::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  renorm models
  renorm models convnet:16/2,32/2,64 --size 28 --classes 10 --layers)";

}  // namespace

Command add_models(CLI::App& program) {
  CLI::App* app = program.add_subcommand("models", "List the models with layers and parameters");
  const auto options = std::make_shared<ModelsOptions>();
  app->add_option("MODEL", options->model, "one model, as in 'renorm train --model'")->default_str("all");
  app->add_flag("--layers", options->layers, "also list every layer with the shape of its output");
  app->add_option("--size", options->size, "pixels a side of the input; 0: the model's example")
      ->type_name("N");
  app->add_option("--channels", options->channels, "channels of the input; 0: the model's example")
      ->type_name("N");
  app->add_option("--classes", options->classes, "classes; 0: the model's example")->type_name("N");
  app->footer(kExamples);
  return {app, [options] { core().models(*options); }};
}

}  // namespace renorm::cli
