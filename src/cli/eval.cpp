// The flags of `renorm eval`.
#include <memory>

#include "base/errors.h"
#include "base/text.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/core.h"
#include "cli/help.h"

namespace renorm::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  renorm eval runs/pairs --checkpoint best --per-class
  renorm eval runs/pairs --batch-statistics --sampler labels:25x2
)";

void add_batch_statistics(CLI::App* app, EvalOptions* options) {
  constexpr const char* kGroup = "Normalising with batch statistics";
  app->add_flag("--batch-statistics", options->batch_statistics,
                "normalise each minibatch with its own statistics, as in training; no average moves")
      ->group(kGroup);
  app->add_option(
         "--sampler", options->sampler,
         "how its minibatches are drawn: iid, labels:LxK, labels:LxK:distinct, blocks:BxLxK; without "
         "it, iid minibatches of the run's size")
      ->type_name("SPEC")
      ->group(kGroup);
  app->add_option("--seed", options->seed, "seed of its minibatches")
      ->check(not_negative)
      ->type_name("N")
      ->capture_default_str()
      ->group(kGroup);
}

void run(const EvalOptions& options) {
  if (options.run.empty()) throw UsageError("'renorm eval' needs DIR, the folder of a run");
  if (options.split != "test" && options.split != "train") {
    throw UsageError("--split must be test or train, got '" + options.split + "'");
  }
  if (!options.sampler.empty() && !options.batch_statistics) {
    throw UsageError("--sampler draws minibatches for --batch-statistics; give both or neither");
  }
  check_threads(options.threads);
  if (options.val_fraction != 0.0 && split_spec(options.data).first != "folder") {
    throw UsageError("--val-fraction is for --data folder:DIR");
  }
  if (!(options.val_fraction >= 0.0 && options.val_fraction < 1.0)) {
    throw UsageError("--val-fraction must be a number from 0 to below 1");
  }
  core().eval(options);
}

}  // namespace

Command add_eval(CLI::App& program) {
  CLI::App* app = program.add_subcommand("eval", "Evaluate a run: averaged and raw weights");
  const auto options = std::make_shared<EvalOptions>();
  app->add_option("DIR", options->run, "folder of a run, the --out of 'renorm train'");
  app->add_option("--checkpoint", options->checkpoint, "last, best or step-N")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--split", options->split, "test or train")->type_name("SPLIT")->capture_default_str();
  app->add_option("--data", options->data, "other data with the same classes and size; without it, the run's")
      ->type_name("SPEC");
  app->add_option("--val-fraction", options->val_fraction,
                  "of --data folder:DIR without a folder val: the share that is the test split")
      ->type_name("X");
  app->add_flag("--per-class", options->per_class, "also the accuracy of each class");
  app->add_option("--threads", options->threads, "threads; 0: as many as the run had")->type_name("N");
  app->add_option("--json", options->json, "also write the figures to this file; - prints them instead")
      ->type_name("FILE");
  add_batch_statistics(app, options.get());
  app->footer(kExamples + ("\n" + exit_codes_text()));
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
