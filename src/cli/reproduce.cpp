// renorm reproduce: the paper's experiments from one command.
#include "experiments/reproduce.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/table.h"
#include "base/text.h"
#include "base/timing.h"
#include "cli/commands.h"
#include "cli/contact_sheet.h"
#include "cli/help.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "dist/launch.h"
#include "experiments/kinds.h"
#include "record/results.h"
#include "report/report.h"

namespace renorm::cli {
namespace {

constexpr int kMaxJobs = 1024;
constexpr int kDefaultColumns = 100;
constexpr int kMaxColumns = 120;
constexpr int kMinColumns = 40;
constexpr int kBar = 24;
constexpr size_t kVerdictWidth = 15;
constexpr size_t kColumns = 6;  // of the table, without further measures

struct ReproduceOptions {
  std::string name = experiments::paper().name;
  experiments::ExperimentOptions experiment;
  bool quick = false;
  std::string arms;
  std::string out;
  int jobs = 0;
  bool json = false;
};

std::string bar(double share) {
  const int full = static_cast<int>(std::floor(std::clamp(share, 0.0, 1.0) * kBar));
  std::string text;
  for (int i = 0; i < kBar; ++i) text += i < full ? "█" : "·";
  return text;
}

double share_of(int64_t done, int64_t all) {
  return all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 0.0;
}

std::string state_of(const experiments::ArmView& arm) {
  if (arm.runs_done == arm.runs) return "done";
  if (!arm.running && arm.steps_done == 0) return "waits";
  return arm.seconds_left < 0.0 ? "starts" : duration_text(arm.seconds_left) + " left";
}

std::string row(const experiments::ArmView& arm, size_t width) {
  const double share = share_of(arm.steps_done, arm.steps);
  return fmt::format("{:<{}}  {} {:>4.0f} %  {:>6}  {}", arm.name, width, bar(share), 100.0 * share,
                     arm.accuracy < 0.0 ? "-" : fmt::format("{:.1f}", arm.accuracy), state_of(arm));
}

// Shows a table that is rewritten on a terminal, or else one line per run that starts or ends.
class ReproduceView : public experiments::ReproduceObserver {
 public:
  void prepares(const std::string& data) override;
  void begins(int64_t runs, int64_t finished) override;
  void run_started(const std::string& arm, uint64_t seed, int64_t from_step) override;
  void run_finished(const std::string& arm, uint64_t seed, double accuracy, double seconds) override;
  void run_failed(const std::string& sentence) override;
  void stops() override;
  void changed(const std::vector<experiments::ArmView>& arms, double seconds_left) override;

 private:
  Progress progress_;
  int64_t runs_ = 0;
  int64_t runs_done_ = 0;
  Stopwatch watch_;
};

void ReproduceView::prepares(const std::string& data) {
  progress_.show(fmt::format("preparing {}", printable(data)));
}

void ReproduceView::begins(int64_t runs, int64_t finished) {
  runs_ = runs;
  runs_done_ = finished;
  if (finished > 0) progress_.print(fmt::format("{} of {} runs were finished before", finished, runs));
}

void ReproduceView::run_started(const std::string& arm, uint64_t seed, int64_t from_step) {
  if (progress_.on_terminal()) return;
  progress_.print(fmt::format("{}, seed {}: {}", arm, seed,
                              from_step > 0 ? fmt::format("continues from step {}", from_step) : "starts"));
}

void ReproduceView::run_finished(const std::string& arm, uint64_t seed, double accuracy, double seconds) {
  ++runs_done_;
  if (progress_.on_terminal()) return;
  progress_.print(fmt::format("{}, seed {}: {:.2f} % in {} ({} of {} runs)", arm, seed, accuracy,
                              duration_text(seconds), runs_done_, runs_));
}

void ReproduceView::run_failed(const std::string& sentence) { progress_.print(sentence); }

void ReproduceView::stops() { progress_.print("stopping: the runs save their state; again to end at once"); }

void ReproduceView::changed(const std::vector<experiments::ArmView>& arms, double seconds_left) {
  if (!progress_.on_terminal()) return;
  size_t width = 3;
  for (const experiments::ArmView& arm : arms) width = std::max(width, arm.name.size());
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}, {} left", duration_text(watch_.seconds()),
                              seconds_left < 0.0 ? "?" : duration_text(seconds_left)));
  lines.push_back(fmt::format("{:<{}}  {:<{}}  {:>12}", "arm", width, "progress", kBar, "test %"));
  for (const experiments::ArmView& arm : arms) lines.push_back(row(arm, width));
  progress_.show_lines(lines);
}

std::string percent(const record::Measure& measure) {
  if (measure.values.empty()) return "-";
  if (measure.values.size() == 1) return fmt::format("{:.1f}", measure.mean);
  return fmt::format("{:.1f} +- {:.1f}", measure.mean, measure.spread);
}

std::string percent(const std::optional<record::Measure>& measure) {
  return measure ? percent(*measure) : "";
}

std::string percent(const std::optional<double>& figure) {
  return figure ? fmt::format("{:.1f}", *figure) : "";
}

std::string steps(const record::Arm& arm, bool has_reference) {
  if (!has_reference) return "-";
  const size_t reached = arm.steps_to_reference.values.size(), finished = arm.test_accuracy.values.size();
  if (finished == 0) return "-";
  if (reached == 0) return "never";
  const std::string mean = fmt::format("{}", std::llround(arm.steps_to_reference.mean));
  return reached < finished ? fmt::format("{} ({} of {})", mean, reached, finished) : mean;
}

// The figures of the paper in the order of the columns: test, training set, batch statistics.
std::string paper(const record::PaperFigures& figures) {
  std::string text = percent(figures.test_accuracy);
  if (figures.train_accuracy) text += fmt::format(" / {}", percent(figures.train_accuracy));
  if (figures.batch_statistics_accuracy) {
    text += fmt::format(" / {}", percent(figures.batch_statistics_accuracy));
  }
  return text;
}

// Columns that have a heading only.
void drop_empty_columns(std::vector<std::vector<std::string>>* rows) {
  for (size_t column = rows->front().size(); column-- > 1;) {
    const bool is_empty = std::all_of(rows->begin() + 1, rows->end(), [&](const auto& row) {
      return row[column].empty() || row[column] == "-";
    });
    if (!is_empty) continue;
    for (auto& row : *rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
}

// One row per arm, beside the figures of the paper.
std::string results_table(const record::Results& results) {
  std::vector<std::vector<std::string>> rows = {{"arm", results.measure.value_or("test") + " %",
                                                 "training set %", "batch statistics %", "steps to reference",
                                                 "paper %"}};
  for (const record::NamedMeasure& other : results.arms.front().others) {
    rows[0].push_back(printable(other.name) + " %");
  }
  const bool has_reference =
      std::any_of(results.arms.begin(), results.arms.end(), [&](const record::Arm& arm) {
        return arm.name == results.reference && !arm.test_accuracy.values.empty();
      });
  for (const record::Arm& arm : results.arms) {
    rows.push_back({printable(arm.name), percent(arm.test_accuracy), percent(arm.train_accuracy),
                    percent(arm.batch_statistics_accuracy), steps(arm, has_reference), paper(arm.paper)});
    rows.back().resize(rows[0].size());
    for (size_t i = 0; i < std::min(arm.others.size(), rows[0].size() - kColumns); ++i) {
      rows.back()[kColumns + i] = percent(arm.others[i].measure);
    }
  }
  drop_empty_columns(&rows);
  return aligned_table(rows);
}

std::string heading_of(const record::Results& results, bool in_paper) {
  if (in_paper) return "claims of the paper\n";
  const bool has_both = std::any_of(results.claims.begin(), results.claims.end(),
                                    [](const record::Claim& claim) { return claim.in_paper; });
  return has_both ? "\nthe same with a stronger bias, not in the paper\n" : "claims, not of the paper\n";
}

// One paragraph per claim: verdict, text, evidence. "" if there are none.
std::string claims_text(const record::Results& results, int columns) {
  const auto width = static_cast<size_t>(columns);
  const std::string blanks(kVerdictWidth, ' ');
  std::string text;
  for (const bool in_paper : {true, false}) {
    bool first = true;
    for (const record::Claim& claim : results.claims) {
      if (claim.in_paper != in_paper) continue;
      if (first) text += heading_of(results, in_paper);
      first = false;
      text += fmt::format("{:<{}}{}\n{}{}\n", claim.verdict, kVerdictWidth,
                          wrapped(claim.text, kVerdictWidth, kVerdictWidth, width), blanks,
                          wrapped(claim.evidence, kVerdictWidth, kVerdictWidth, width));
    }
  }
  return results.test.empty() ? text : text + "\n" + wrapped(results.test, 0, 0, width) + "\n";
}

std::string folder_of(const ReproduceOptions& options) {
  if (!options.out.empty()) return options.out;
  const bool is_default = options.name == experiments::paper().name;
  return fmt::format("runs/reproduce-{}{}", is_default ? "" : options.name + "-",
                     options.experiment.full ? "full" : "quick");
}

void check(const ReproduceOptions& options) {
  if (options.quick && options.experiment.full) {
    throw UsageError("--quick and --full exclude each other");
  }
  if (options.jobs < 0 || options.jobs > kMaxJobs) {
    throw UsageError(
        fmt::format("--jobs must be a whole number from 1 to {}, got {}", kMaxJobs, options.jobs));
  }
}

// Throws UsageError if a file of the user has the name of an output, OutputError if an output cannot be
// written. Links are left to experiments::reproduce().
void check_outputs(const std::string& folder) {
  struct Output {
    const char* name;
    bool (*is_earlier_output)(const std::string& bytes);
  };
  for (const Output& output :
       {Output{experiments::kPreviewFile, is_contact_sheet}, Output{kReportFile, report::is_report}}) {
    const std::string path = fmt::format("{}/{}", folder, output.name);
    std::error_code error;
    if (!std::filesystem::exists(path, error) || std::filesystem::is_symlink(path, error)) continue;
    check_writable(path);
    if (is_replaceable(path, output.is_earlier_output)) continue;
    throw UsageError(fmt::format(
        "'{}' exists and is not an earlier output of this command; move it, or choose another --out",
        printable(path)));
  }
}

void print_results(const record::Results& results, const std::string& folder, const std::string& report) {
  const int columns = std::clamp(terminal_columns(STDOUT_FILENO, kDefaultColumns), kMinColumns, kMaxColumns);
  fmt::print("{}\n\n{}\n", results.title, results_table(results));
  if (results.name == "quick" || results.name == "full") {
    fmt::print("paper %: Inception-v3 on ImageNet; test / training set / batch statistics, where given\n\n");
  }
  const std::string claims = claims_text(results, columns);
  if (!claims.empty()) fmt::print("{}\n", claims);
  fmt::print("figures        {}/{}\n", printable(folder), experiments::kResultsFile);
  fmt::print("report         {}\n", printable(report));
}

void run(ReproduceOptions options) {
  check(options);
  if (!dist::launch_of_process().is_alone()) {
    throw UsageError(
        "'renorm reproduce' starts processes of its own; run it once, without mpirun, srun or torchrun");
  }
  if (!options.arms.empty()) options.experiment.arms = split(options.arms, ',');
  experiments::ReproduceRequest request;
  request.experiment =
      experiments::make_experiment(experiments::experiment_named(options.name), options.experiment);
  request.folder = folder_of(options);
  request.jobs =
      options.jobs > 0 ? options.jobs : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  check_outputs(request.folder);
  const StopSignals signals("");  // the view reports it above its table
  request.stop = signals.requested();
  experiments::Reproduced reproduced;
  {
    ReproduceView view;
    reproduced = experiments::reproduce(request, view);
  }
  const record::Results& results = reproduced.results;
  const std::string report = fmt::format("{}/{}", request.folder, kReportFile);
  const std::string page = report_page(results, request.folder);
  reproduced.lock->check();
  write_atomically(report, page, Links::kReplace);
  if (options.json) {
    fmt::print("{}", to_json(results));
  } else {
    print_results(results, request.folder, report);
  }
}

std::string footer() {
  std::string names;
  for (const experiments::ExperimentKind& kind : experiments::experiment_kinds()) {
    names += fmt::format("  {:<12}{}\n", kind.name, kind.summary);
  }
  const std::vector<std::string> arms = experiments::arm_names(experiments::paper());
  return fmt::format(
      "Experiments:\n{}\n"
      "Arms of 'paper': {}. An unknown name after --arms lists those of another experiment.\n\n"
      "Examples:\n"
      "  renorm reproduce --quick\n"
      "  renorm reproduce --full --out runs/full\n"
      "  renorm reproduce bias\n"
      "  renorm reproduce --arms {},{} --data cifar10:/data/cifar-10-batches-bin\n\n"
      "The same command continues an experiment that was stopped or killed; finished runs are not repeated. "
      "More arms or seeds in the same folder are added to it.\n\n{}",
      names, fmt::join(arms, ", "), arms.front(), arms.back(), exit_codes_text());
}

}  // namespace

Command add_reproduce(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("reproduce", "Run the paper's experiments, or others, and judge their claims");
  const auto options = std::make_shared<ReproduceOptions>();
  experiments::ExperimentOptions& experiment = options->experiment;
  app->add_option("NAME", options->name, "the experiment")->default_str("paper");
  app->add_flag("--quick", options->quick, "one seed, a few minutes; the default");
  app->add_flag("--full", experiment.full, "several seeds and longer runs; over an hour on two cores");
  app->add_option("--seeds", experiment.seeds, "seeds per arm; 0: one, or with --full 5 ('paper') or 3")
      ->type_name("N");
  app->add_option("--steps", experiment.steps, "steps per run; 0: what the experiment has")->type_name("N");
  app->add_option("--arms", options->arms, "comma-separated names of arms [all]")->type_name("LIST");
  app->add_option("--jobs", options->jobs, "runs in parallel, one thread each; 0: one per CPU")
      ->type_name("N");
  app->add_option("--out", options->out, "folder [runs/reproduce-quick, -full or -NAME-quick]")
      ->type_name("DIR");
  app->add_option("--data", experiment.data, "data of all arms, as in 'renorm train'")->type_name("SPEC");
  app->add_option("--model", experiment.model, "model of all arms, as in 'renorm train'")->type_name("SPEC");
  app->add_flag("--json", options->json, "print results.json instead of the table");
  app->footer(footer());
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
