// renorm bench step: a training step with our layer and with others, and the overhead of the trainer.
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/table.h"
#include "base/text.h"
#include "base/timing.h"
#include "bench/results.h"
#include "bench/step_contest.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/tensor_memory.h"
#include "train/threads.h"

namespace renorm::cli {
namespace {

constexpr int64_t kMaxCount = 1000000;
constexpr int64_t kMaxThreads = 1024;

using Json = nlohmann::ordered_json;
using bench::Contestant;
using bench::InferenceTimes;
using bench::StepContest;

constexpr double kMegabyte = 1e6;

template <typename Part>
double median_ms(const Contestant& contestant, Part&& part) {
  std::vector<double> values;
  for (const train::StepTimes& times : contestant.steps) values.push_back(1e3 * part(times));
  return median(values);
}

double overhead_percent(const Contestant& contestant) {
  std::vector<double> shares;
  for (const train::StepTimes& t : contestant.steps) shares.push_back(100.0 * (t.load + t.other) / t.all());
  return median(shares);
}

// The median over the rounds of the ratio within a round: a slow phase of the machine slows both.
double ratio_of(const std::vector<double>& these, const std::vector<double>& natives) {
  std::vector<double> ratios;
  for (size_t i = 0; i < these.size(); ++i) ratios.push_back(these[i] / natives[i]);
  return median(ratios);
}

std::vector<double> step_seconds(const Contestant& contestant) {
  std::vector<double> seconds;
  for (const train::StepTimes& times : contestant.steps) seconds.push_back(times.all());
  return seconds;
}

Json to_json(const Contestant& contestant, const Contestant& native) {
  using Times = const train::StepTimes&;
  Json entry = {{"step_ms", median_ms(contestant, [](Times t) { return t.all(); })},
                {"load_ms", median_ms(contestant, [](Times t) { return t.load; })},
                {"forward_ms", median_ms(contestant, [](Times t) { return t.forward; })},
                {"backward_ms", median_ms(contestant, [](Times t) { return t.backward; })},
                {"optimizer_ms", median_ms(contestant, [](Times t) { return t.optimizer; })},
                {"other_ms", median_ms(contestant, [](Times t) { return t.other; })},
                {"overhead_percent", overhead_percent(contestant)},
                {"over_native", ratio_of(step_seconds(contestant), step_seconds(native))},
                {"cpu_ms", 1e3 * median(contestant.cpu_seconds)},
                {"over_native_cpu", ratio_of(contestant.cpu_seconds, native.cpu_seconds)}};
  for (const double seconds : step_seconds(contestant)) entry["step_ms_each"].push_back(1e3 * seconds);
  for (const double seconds : contestant.cpu_seconds) entry["cpu_ms_each"].push_back(1e3 * seconds);
  const auto megabytes = [](double bytes) { return bytes < 0.0 ? Json() : Json(bytes / kMegabyte); };
  entry["peak_tensors_mb"] = megabytes(contestant.peak_memory.tensors);
  entry["peak_memory_mb"] = megabytes(contestant.peak_memory.resident);
  return entry;
}

Json to_json(const InferenceTimes& times, const InferenceTimes& native) {
  return {{"ms", 1e3 * median(times.seconds)}, {"over_native", ratio_of(times.seconds, native.seconds)}};
}

// The native entry of the same layout.
template <typename Entry, typename Kind>
const Entry& native_of(const std::vector<Entry>& entries, Kind Entry::*kind, const Entry& entry) {
  for (const Entry& other : entries) {
    if (other.layout == entry.layout && other.*kind == Kind::kNative) return other;
  }
  return entry;
}

Json to_json(const StepContest& contest) {
  const bench::Machine machine = bench::this_machine();
  const bench::StepOptions& options = contest.options;
  Json json = {{"machine",
                {{"cpu", machine.cpu},
                 {"cpus", machine.cpus},
                 {"simd_target", machine.simd_target},
                 {"libtorch", machine.libtorch}}},
               {"model", options.model},
               {"parameters", contest.parameters},
               {"data", options.data},
               {"workers", options.workers},
               {"minibatch", options.minibatch},
               {"threads", options.threads},
               {"steps", options.steps}};
  for (const Contestant& contestant : contest.contestants) {
    json["layouts"][name_of(contestant.layout)]["norms"][name_of(contestant.norm)] =
        to_json(contestant, native_of(contest.contestants, &Contestant::norm, contestant));
  }
  for (const InferenceTimes& times : contest.inference) {
    json["layouts"][name_of(times.layout)]["inference"][name_of(times.kind)] =
        to_json(times, native_of(contest.inference, &InferenceTimes::kind, times));
  }
  return json;
}

void print_layout(const std::string& layout, const Json& results) {
  std::vector<std::vector<std::string>> rows = {{layout, "step ms", "forward", "backward", "optimizer",
                                                 "load", "other", "x native", "x CPU", "tensors MB",
                                                 "resident MB"}};
  for (const auto& [norm, entry] : results["norms"].items()) {
    const auto number = [&entry = entry](const char* key, int digits) {
      return entry[key].is_null() ? "-" : fmt::format("{:.{}f}", entry[key].get<double>(), digits);
    };
    rows.push_back({norm, number("step_ms", 1), number("forward_ms", 1), number("backward_ms", 1),
                    number("optimizer_ms", 2), number("load_ms", 2), number("other_ms", 2),
                    number("over_native", 3), number("over_native_cpu", 3), number("peak_tensors_mb", 1),
                    number("peak_memory_mb", 1)});
  }
  fmt::print("\n{}", aligned_table(rows));
  fmt::print("inference");
  for (const auto& [what, entry] : results["inference"].items()) {
    fmt::print("  {} {:.1f} ms (x {:.3f})", what, entry["ms"].get<double>(),
               entry["over_native"].get<double>());
  }
  fmt::print("\n");
}

void print_table(const Json& json) {
  const auto threads = json["threads"].get<int64_t>();
  fmt::print("{}, {} parameters, data {}; {} x {} images per step, {} thread{}, {} steps of each in turn\n",
             json["model"].get<std::string>(), json["parameters"].get<int64_t>(),
             printable(json["data"].get<std::string>()), json["workers"].get<int64_t>(),
             json["minibatch"].get<int64_t>(), threads, threads == 1 ? "" : "s",
             json["steps"].get<int64_t>());
  for (const auto& [layout, results] : json["layouts"].items()) {
    print_layout(layout, results);
    const std::string renorm = name_of(bench::StepNorm::kRenorm);
    if (!results["norms"].contains(renorm)) continue;
    fmt::print("trainer overhead with {} (all but forward, backward and optimizer): {:.2f} % of a step\n",
               renorm, results["norms"][renorm]["overhead_percent"].get<double>());
  }
  fmt::print(
      R"(
Medians over the steps, wall time. x native: median of the ratios within a round; x CPU: the same for CPU
time, which other processes disturb less. native: LibTorch's BatchNorm2d and a separate ReLU. tensor-ops:
Batch Renorm in tensor operations. folded: norms folded into the convolutions. tensors: peak of the tensors
alive at once; resident: peak that a trainer alone adds to its process, which also depends on the allocator.
)");
}

void check(const bench::StepOptions& options) {
  check_count("--minibatch", options.minibatch, 1, kMaxCount);
  check_count("--workers", options.workers, 1, kMaxCount);
  check_count("--threads", options.threads, 1, kMaxThreads);
  if (options.steps != 0) check_count("--steps", options.steps, 1, kMaxCount);
}

// Flags as they were given.
struct StepFlags {
  bench::StepOptions options;
  std::string memory_format = name_of(bench::StepLayouts::kBoth);
  std::vector<std::string> norms;
  bool force = false;
};

bench::StepOptions parsed(const StepFlags& flags) {
  bench::StepOptions options = flags.options;
  options.layouts = parse_choice<bench::StepLayouts>(flags.memory_format);
  for (const std::string& norm : flags.norms) options.norms.push_back(parse_choice<bench::StepNorm>(norm));
  return options;
}

void run(const StepFlags& flags) {
  const bench::StepOptions options = parsed(flags);
  check(options);
  check_figures_output(options.json, flags.force, {"machine", "layouts"});
  train::use_threads(options.threads);
  reuse_tensor_memory();  // as `renorm train` does
  Progress progress;
  const StepContest contest =
      bench::run_step_contest(options, [&](const std::string& what) { progress.show(what); });
  progress.clear();
  const Json json = to_json(contest);
  print_table(json);
  if (!options.json.empty()) write_atomically(options.json, json.dump(2) + "\n");
}

}  // namespace

Command add_bench_step(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand(
      "step", "Time a training step with our layer, with LibTorch's and with tensor operations");
  const auto flags = std::make_shared<StepFlags>();
  bench::StepOptions* options = &flags->options;
  app->add_option("--model", options->model, "model, as in 'renorm train'; 'renorm models' lists them")
      ->type_name("SPEC")
      ->capture_default_str();
  app->add_option(
         "--data", options->data,
         "data, as in 'renorm train', or random: images of random bytes in the model's own size [strokes; "
         "random for resnet18, resnet50 and inception-v3]; images of a folder are loaded ahead while others "
         "are timed")
      ->type_name("SPEC");
  app->add_option("--memory-format", flags->memory_format, choice_help<bench::StepLayouts>())
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option(
         "--norms", flags->norms,
         "comma-separated list of " + choice_help<bench::StepNorm>() + "; native is always included [all]")
      ->type_name("NAMES")
      ->delimiter(',');
  app->add_option("--minibatch", options->minibatch, "images that are normalized together")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--workers", options->workers, "minibatches per step")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--threads", options->threads, "threads")->type_name("N")->capture_default_str();
  app->add_option("--steps", options->steps, "timed steps of each; 0: 30, or 5 for nets for large images")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--json", options->json, "also write all figures to this file")->type_name("FILE");
  app->add_flag("--force", flags->force,
                "let --json replace a file that is no output of 'renorm bench step'");
  return {app, [flags] { run(*flags); }};
}

}  // namespace renorm::cli
