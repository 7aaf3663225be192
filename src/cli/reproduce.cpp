// renorm reproduce: the paper's experiments from one command.
#include "experiments/paper.h"
#include "experiments/reproduce.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "base/errors.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/report_file.h"
#include "cli/reproduce_view.h"
#include "cli/results_table.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"

namespace renorm::cli {
namespace {

constexpr int kMostJobs = 1024;
constexpr int kUnknownWidth = 100;
constexpr int kWidest = 120;
constexpr int kNarrowest = 40;

struct ReproduceOptions {
  experiments::ExperimentOptions experiment;
  bool quick = false;
  std::string arms;
  std::string out;
  int jobs = 0;
  bool json = false;
};

std::string folder_of(const ReproduceOptions& options) {
  if (!options.out.empty()) return options.out;
  return options.experiment.full ? "runs/reproduce-full" : "runs/reproduce-quick";
}

void check(const ReproduceOptions& options) {
  if (options.quick && options.experiment.full) {
    throw UsageError("--quick and --full are two sizes of one experiment; give one of them");
  }
  if (options.jobs < 0 || options.jobs > kMostJobs) {
    throw UsageError(
        fmt::format("--jobs must be a whole number from 1 to {}, got {}", kMostJobs, options.jobs));
  }
}

void print_results(const record::Results& results, const std::string& folder, const std::string& report) {
  const int columns = std::clamp(terminal_columns(STDOUT_FILENO, kUnknownWidth), kNarrowest, kWidest);
  fmt::print("{}\n\n{}\n", results.title, results_table(results));
  fmt::print(
      "paper %: ImageNet and Inception v3; test, and where it says so training set / batch statistics\n\n");
  const std::string claims = claims_text(results, columns);
  if (!claims.empty()) fmt::print("{}\n", claims);
  fmt::print("figures        {}/{}\n", printable(folder), experiments::kResultsFile);
  fmt::print("report         {}\n", printable(report));
}

void run(ReproduceOptions options) {
  check(options);
  if (!options.arms.empty()) options.experiment.arms = split(options.arms, ',');
  experiments::ReproduceRequest request;
  request.experiment = experiments::paper_experiment(options.experiment);
  request.folder = folder_of(options);
  request.jobs =
      options.jobs > 0 ? options.jobs : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const StopSignals signals("");  // the view says it, above its table
  request.stop = signals.requested();
  record::Results results;
  {
    ReproduceView view;
    results = experiments::reproduce(request, view);
  }
  const std::string report = request.folder + "/report.html";
  write_report(results, request.folder, report);
  if (options.json) {
    fmt::print("{}", to_json(results));
  } else {
    print_results(results, request.folder, report);
  }
}

std::string footer() {
  return fmt::format(
      "Arms: {}.\n\n"
      "Examples:\n"
      "  renorm reproduce --quick\n"
      "  renorm reproduce --full --out runs/full\n"
      "  renorm reproduce --arms iid-batchnorm,iid-renorm --data cifar10:/data/cifar-10-batches-bin\n\n"
      "Killed or stopped, the same command goes on where it was; what is finished is not run again. More "
      "arms or seeds "
      "in the same folder are added to it.\n\n{}",
      fmt::join(experiments::arm_names(experiments::paper()), ", "), exit_codes_text());
}

}  // namespace

Command add_reproduce(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("reproduce", "Run the paper's experiments and compare with its figures");
  const auto options = std::make_shared<ReproduceOptions>();
  experiments::ExperimentOptions& experiment = options->experiment;
  app->add_flag("--quick", options->quick, "one seed, a few minutes; the default");
  app->add_flag("--full", experiment.full, "three seeds, more data, longer runs; about an hour on two cores");
  app->add_option("--seeds", experiment.seeds, "seeds of each arm; 0: one, or three with --full")
      ->type_name("N");
  app->add_option("--steps", experiment.steps, "steps of each run; 0: 1300, or 4000 with --full")
      ->type_name("N");
  app->add_option("--arms", options->arms, "arms by name, with commas between; without it, all")
      ->type_name("LIST");
  app->add_option("--jobs", options->jobs, "runs at a time, one thread each; 0: one a CPU")->type_name("N");
  app->add_option("--out", options->out, "folder; without it, runs/reproduce-quick or runs/reproduce-full")
      ->type_name("DIR");
  app->add_option("--data", experiment.data, "data, as in 'renorm train'; without it, strokes")
      ->type_name("SPEC");
  app->add_option("--model", experiment.model, "model, as in 'renorm train'; without it, convnet")
      ->type_name("SPEC");
  app->add_flag("--json", options->json, "print results.json instead of the table");
  app->footer(footer());
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
