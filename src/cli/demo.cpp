// The flags of `renorm demo`.
#include <memory>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/core.h"

namespace renorm::cli {
namespace {

// The first lines that the command prints; a test compares them.
constexpr const char* kSetting =
    R"(12 classes of drawn strokes, 20x20 pixels, noise 0.3. Three convolutions of 16, 32 and 32 channels,
each normalised (momentum of the averages 0.01), then mean pooling to 2x2 and a linear layer. A step
takes 8 minibatches of 8 images, each normalised by itself; the images of a biased minibatch are of
1 class. SGD, momentum 0.9, learning rate 0.1 falling to 0. Limits of r and d: the paper's schedule,
scaled to the run. Accuracy is that of inference on 4800 new images of all classes.)";

}  // namespace

Command add_demo(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "demo", "Train a small net three times: batchnorm, batchnorm and Batch Renorm on biased minibatches");
  const auto options = std::make_shared<DemoOptions>();
  app->add_option("--steps", options->steps, "training steps of each run")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--seed", options->seed, "seed of data and weights")
      ->check(not_negative)
      ->type_name("N")
      ->capture_default_str();
  app->footer(kSetting);
  return {app, [options] { core().demo(*options); }};
}

}  // namespace renorm::cli
