// renorm bench workers: a training step on one and on several processes, in turn, and a projection for many.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/table.h"
#include "base/text.h"
#include "base/timing.h"
#include "bench/results.h"
#include "bench/workers.h"
#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/tensor_memory.h"
#include "experiments/children.h"

namespace renorm::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kProjected[] = {8, 16, 32, 50, 128, 256, 512, 1024};
constexpr double kBitsPerGigabit = 1e9;
constexpr int64_t kMaxCount = 1'000'000;
constexpr int64_t kMaxProcesses = 1'024;

struct Flags {
  bench::WorkersOptions options;
  int processes = 2;
  int64_t rounds = 9;
  double gbit = 0.0;         // of the projection's network; 0: as measured
  double latency_us = -1.0;  // below 0: as measured
  std::string json;
  bool force = false;
  // Of a measuring process: its rank, and the folder where it meets the others and writes its result.
  int rank = -1;
  std::string place;
};

// The part of a process, started by measure().
void run_process(const Flags& flags) {
  reuse_tensor_memory();
  std::unique_ptr<dist::Group> group;
  if (flags.processes > 1) {
    dist::Launch launch;
    launch.rank = flags.rank;
    launch.size = launch.local_size = flags.processes;
    launch.job = "bench";
    group = std::make_unique<dist::Group>(launch, dist::rendezvous_of(launch, "", flags.place),
                                          dist::Group::Options());
  }
  const bench::WorkerTimes times = bench::measure_steps(flags.options, group.get());
  Json json = {{"step_seconds", times.step_seconds},
               {"bytes", times.bytes},
               {"gradient_bytes", times.gradient_bytes},
               {"statistics_bytes", times.statistics_bytes},
               {"sums", times.sums}};
  for (const train::StepPart& part : train::kStepParts) json[part.name] = times.parts.*part.seconds;
  if (flags.processes == 2) {
    const bench::Network network = bench::measure_network(*group);
    json["latency"] = network.latency;
    json["bandwidth"] = network.bandwidth;
  }
  if (flags.rank == 0) write_atomically(flags.place + "/result.json", json.dump());
}

// A folder that is gone in the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "renorm-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw OutputError("cannot create a temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Runs one process per rank and returns what rank 0 measured.
Json measure(const Flags& flags, int processes, int threads) {
  const TemporaryFolder place;
  const std::string log = place.path() + "/log";
  const bench::WorkersOptions& options = flags.options;
  std::vector<experiments::Child> children;
  children.reserve(static_cast<size_t>(processes));
  for (int rank = 0; rank < processes; ++rank) {
    children.emplace_back(std::vector<std::string>{"bench",       "workers",
                                                   "--model",     options.model,
                                                   "--data",      options.data,
                                                   "--minibatch", std::to_string(options.minibatch),
                                                   "--workers",   std::to_string(options.workers),
                                                   "--steps",     std::to_string(options.steps),
                                                   "--processes", std::to_string(processes),
                                                   "--threads",   std::to_string(threads),
                                                   "--rank",      std::to_string(rank),
                                                   "--place",     place.path()},
                          log);
  }
  for (experiments::Child& child : children) {
    int code = 0;
    while (!child.ended(&code)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (code != 0) throw_for_exit_code(code, experiments::last_line(log));
  }
  return Json::parse(read_file(place.path() + "/result.json"));
}

bench::WorkerTimes times_of(const Json& json) {
  bench::WorkerTimes times;
  times.step_seconds = json["step_seconds"].get<std::vector<double>>();
  for (const train::StepPart& part : train::kStepParts) times.parts.*part.seconds = json[part.name];
  times.bytes = json["bytes"];
  times.gradient_bytes = json["gradient_bytes"];
  times.statistics_bytes = json["statistics_bytes"];
  times.sums = json["sums"];
  return times;
}

template <typename Number>
double median_of(const std::vector<Json>& rounds, const Number& number) {
  std::vector<double> values(rounds.size());
  std::transform(rounds.begin(), rounds.end(), values.begin(), number);
  return median(values);
}

double step_of(const Json& round) { return median(round["step_seconds"].get<std::vector<double>>()); }

// Medians over the rounds; the ratio is the median of the ratios within a round.
Json summary(const Flags& flags, int threads, const std::vector<Json>& alone,
             const std::vector<Json>& shared) {
  const auto images = static_cast<double>(flags.options.workers * flags.options.minibatch);
  const auto entry = [&](const std::vector<Json>& rounds, int processes, int per_process) {
    const double step = median_of(rounds, step_of);
    Json json = {{"processes", processes},
                 {"threads_per_process", per_process},
                 {"step_ms", 1e3 * step},
                 {"images_per_second", images / step}};
    for (const train::StepPart& part : train::kStepParts) {
      const auto of_round = [&](const Json& round) { return round[part.name].get<double>(); };
      json[std::string(part.name) + "_ms"] = 1e3 * median_of(rounds, of_round);
    }
    return json;
  };
  std::vector<double> ratios;
  for (size_t i = 0; i < alone.size(); ++i) ratios.push_back(step_of(alone[i]) / step_of(shared[i]));
  const bench::WorkerTimes times = times_of(shared.back());
  const bench::Machine machine = bench::this_machine();
  return {{"machine", {{"cpu", machine.cpu}, {"cpus", machine.cpus}, {"libtorch", machine.libtorch}}},
          {"model", flags.options.model},
          {"workers", flags.options.workers},
          {"minibatch", flags.options.minibatch},
          {"rounds", flags.rounds},
          {"steps", flags.options.steps},
          {"one", entry(alone, 1, threads * flags.processes)},
          {"shared", entry(shared, flags.processes, threads)},
          {"speed_over_one", median(ratios)},
          {"speed_over_one_each", ratios},
          {"bytes_per_step", times.bytes},
          {"gradient_bytes", times.gradient_bytes},
          {"statistics_bytes", times.statistics_bytes},
          {"sums_per_step", times.sums},
          {"bytes_over_least", static_cast<double>(times.bytes) /
                                   static_cast<double>(times.gradient_bytes + times.statistics_bytes)}};
}

void add_projection(const Flags& flags, const std::vector<Json>& shared, Json* json) {
  if (flags.processes != 2) return;
  bench::Network network;
  network.latency = median_of(shared, [](const Json& round) { return round["latency"].get<double>(); });
  network.bandwidth = median_of(shared, [](const Json& round) { return round["bandwidth"].get<double>(); });
  (*json)["network"] = {{"latency_us", 1e6 * network.latency},
                        {"gbit_per_second", 8.0 * network.bandwidth / kBitsPerGigabit}};
  if (flags.gbit > 0.0) network.bandwidth = flags.gbit * kBitsPerGigabit / 8.0;
  if (flags.latency_us >= 0.0) network.latency = 1e-6 * flags.latency_us;
  (*json)["projection"] = {{"latency_us", 1e6 * network.latency},
                           {"gbit_per_second", 8.0 * network.bandwidth / kBitsPerGigabit}};
  const bench::WorkerTimes times = times_of(shared.back());
  (*json)["projection"]["workers_per_process"] = flags.options.workers / flags.processes;
  for (const int64_t processes : kProjected) {
    const bench::Projection one = project(processes, times, network);
    (*json)["projection"]["sizes"].push_back({{"processes", processes},
                                              {"ring_bound_ms", 1e3 * one.bound},
                                              {"sums_ms", 1e3 * one.sums},
                                              {"step_ms", 1e3 * one.step},
                                              {"efficiency", one.efficiency}});
  }
}

void print_projection(const Json& projection) {
  fmt::print("\nProjection, not measured: workers per process {}, {:.1f} Gbit/s and {:.0f} us per message\n",
             projection["workers_per_process"].get<int64_t>(), projection["gbit_per_second"].get<double>(),
             projection["latency_us"].get<double>());
  std::vector<std::vector<std::string>> rows = {
      {"processes", "ring bound ms", "sums ms", "step ms", "efficiency"}};
  for (const Json& one : projection["sizes"]) {
    rows.push_back({std::to_string(one["processes"].get<int64_t>()),
                    fmt::format("{:.1f}", one["ring_bound_ms"].get<double>()),
                    fmt::format("{:.1f}", one["sums_ms"].get<double>()),
                    fmt::format("{:.1f}", one["step_ms"].get<double>()),
                    fmt::format("{:.2f}", one["efficiency"].get<double>())});
  }
  fmt::print("{}", aligned_table(rows));
}

void print_summary(const Json& json) {
  fmt::print("{}, {} x {} images per step; {} rounds of {} steps of each in turn\n\n",
             json["model"].get<std::string>(), json["workers"].get<int64_t>(),
             json["minibatch"].get<int64_t>(), json["rounds"].get<int64_t>(), json["steps"].get<int64_t>());
  std::vector<std::vector<std::string>> rows = {
      {"processes", "threads each", "images/s", "step ms", "forward", "backward", "waiting", "rest"}};
  for (const char* name : {"one", "shared"}) {
    const Json& entry = json[name];
    const auto number = [&](const char* key) { return fmt::format("{:.2f}", entry[key].get<double>()); };
    const double rest = entry["load_ms"].get<double>() + entry["optimizer_ms"].get<double>() +
                        entry["other_ms"].get<double>();
    rows.push_back({std::to_string(entry["processes"].get<int>()),
                    std::to_string(entry["threads_per_process"].get<int>()),
                    fmt::format("{:.0f}", entry["images_per_second"].get<double>()), number("step_ms"),
                    number("forward_ms"), number("backward_ms"), number("wait_ms"),
                    fmt::format("{:.2f}", rest)});
  }
  fmt::print("{}", aligned_table(rows));
  fmt::print("speed over one process: {:.3f}, median of the ratios within a round\n",
             json["speed_over_one"].get<double>());
  fmt::print("bytes per step: {}, {:.3f} x (gradients + statistics), in {} sums\n",
             grouped(json["bytes_per_step"].get<int64_t>()), json["bytes_over_least"].get<double>(),
             json["sums_per_step"].get<int64_t>());
  if (!json.contains("network")) return;
  fmt::print("between two processes: {:.1f} Gbit/s, {:.0f} us per message\n",
             json["network"]["gbit_per_second"].get<double>(), json["network"]["latency_us"].get<double>());
  print_projection(json["projection"]);
}

void run(const Flags& flags) {
  if (flags.rank >= 0) return run_process(flags);
  check_count("--minibatch", flags.options.minibatch, 1, kMaxCount);
  check_count("--workers", flags.options.workers, 1, kMaxCount);
  check_count("--steps", flags.options.steps, 1, kMaxCount);
  check_count("--rounds", flags.rounds, 1, kMaxCount);
  check_count("--processes", flags.processes, 1, kMaxProcesses);
  if (flags.options.workers % flags.processes != 0) {
    throw UsageError(fmt::format("--workers must be a multiple of --processes {}, got {}", flags.processes,
                                 flags.options.workers));
  }
  check_figures_output(flags.json, flags.force, {"machine", "one", "shared"});
  const int threads = dist::threads_per_process(flags.processes);
  Progress progress;
  std::vector<Json> alone;
  std::vector<Json> shared;
  for (int64_t round = 0; round < flags.rounds; ++round) {
    progress.show(fmt::format("round {} of {}", round + 1, flags.rounds));
    alone.push_back(measure(flags, 1, threads * flags.processes));
    shared.push_back(measure(flags, flags.processes, threads));
  }
  progress.clear();
  Json json = summary(flags, threads, alone, shared);
  add_projection(flags, shared, &json);
  print_summary(json);
  if (!flags.json.empty()) write_atomically(flags.json, json.dump(2) + "\n");
}

}  // namespace

Command add_bench_workers(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand("workers", "Time a training step on one and on several processes");
  const auto flags = std::make_shared<Flags>();
  bench::WorkersOptions* options = &flags->options;
  app->add_option("--model", options->model, "model, as in 'renorm train'")
      ->type_name("SPEC")
      ->capture_default_str();
  app->add_option("--data", options->data, "data, as in 'renorm train'")
      ->type_name("SPEC")
      ->capture_default_str();
  app->add_option("--minibatch", options->minibatch, "images that are normalized together")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--workers", options->workers, "minibatches per step, divided over the processes")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--processes", flags->processes, "processes that share a step; 2 for a projection")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--rounds", flags->rounds, "rounds; each times one process, then all")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--steps", options->steps, "timed steps per round")->type_name("N")->capture_default_str();
  app->add_option("--gbit", flags->gbit, "bandwidth of the projection's network in Gbit/s [as measured]")
      ->type_name("X");
  app->add_option("--latency-us", flags->latency_us, "its microseconds per message [as measured]")
      ->type_name("X");
  app->add_option("--json", flags->json, "also write all figures to this file")->type_name("FILE");
  app->add_flag("--force", flags->force,
                "let --json replace a file that is no output of 'renorm bench workers'");
  // For the processes that this command starts.
  app->add_option("--threads", options->threads)->group("");
  app->add_option("--rank", flags->rank)->group("");
  app->add_option("--place", flags->place)->group("");
  return {app, [flags] { run(*flags); }};
}

}  // namespace renorm::cli
