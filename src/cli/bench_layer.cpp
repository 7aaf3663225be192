// renorm bench layer: the speed of our layer and its peers on this machine.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "bench/cases.h"
#include "bench/competitors.h"
#include "bench/results.h"
#include "bench/verify.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "kernels/kernels.h"
#include "train/threads.h"

namespace renorm::cli {
namespace {

struct BenchLayerOptions {
  bool quick = false;
  bool fresh_memory = false;
  int threads = 1;
  std::string shapes;
  std::string simd;
  std::string json;
  bool force = false;
};

constexpr int kMaxThreads = 1024;
// Of one pass of one case.
constexpr bench::Effort kFullEffort{1.5, 3, 100};
constexpr bench::Effort kQuickEffort{1.0, 3, 30};

// glibc returns freed blocks above 32 MB to the system. A competitor that allocates would then measure page
// faults, which cost more than its work. A program that trains reuses the same sizes. The setting applies to
// every competitor.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

bench::CaseResult measure_case(const bench::Case& shape_and_layout, const BenchLayerOptions& flags,
                               Progress& progress, const std::string& place) {
  const std::string name =
      fmt::format("{} {} {}", place, name_of(shape_and_layout.layout), shape_and_layout.shape_name());
  progress.show(name + ": checking that all competitors agree");
  bench::Field field(shape_and_layout);
  bench::verify(field);
  bench::CaseResult result{shape_and_layout, {}};
  for (const bench::Pass pass : bench::kPasses) {
    progress.show(fmt::format("{}: {}", name, name_of(pass)));
    result.passes[pass] = bench::measure(field.competitors(pass, flags.threads),
                                         flags.quick ? kQuickEffort : kFullEffort, flags.threads);
  }
  return result;
}

// From here on all kernels run on the named instruction set.
void force_simd(const std::string& target) {
  const std::vector<std::string> targets = kernels::runnable_simd_targets();
  if (std::find(targets.begin(), targets.end(), target) == targets.end()) {
    throw UsageError(
        fmt::format("--simd must be one of {}, got '{}'", fmt::join(targets, ", "), printable(target)));
  }
  kernels::force_simd_target(target);
}

void run(const BenchLayerOptions& flags) {
  if (flags.threads < 1 || flags.threads > kMaxThreads) {
    throw UsageError(fmt::format("--threads must be from 1 to {}, got {}", kMaxThreads, flags.threads));
  }
  check_figures_output(flags.json, flags.force, {"machine", "geomean", "cases"});
  if (!flags.simd.empty()) force_simd(flags.simd);
  const std::vector<bench::Case> cases =
      flags.shapes.empty() ? bench::standard_cases(flags.quick) : bench::parse_cases(flags.shapes);
  if (!flags.fresh_memory) keep_freed_memory();
  train::use_threads(flags.threads);
  bench::Results results{bench::this_machine(), flags.threads, flags.quick, flags.fresh_memory, {}};
  Progress progress;
  for (const bench::Case& shape_and_layout : cases) {
    const std::string place = fmt::format("[{}/{}]", results.cases.size() + 1, cases.size());
    results.cases.push_back(measure_case(shape_and_layout, flags, progress, place));
  }
  progress.clear();
  fmt::print("{}", bench::to_table(results));
  if (!flags.json.empty()) write_atomically(flags.json, bench::to_json(results));
}

}  // namespace

Command add_bench_layer(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand(
      "layer", "Our layer against LibTorch's batchnorm, oneDNN, tensor operations and a plain copy");
  const auto options = std::make_shared<BenchLayerOptions>();
  app->add_flag("--quick", options->quick, "fewer shapes and rounds: under a minute instead of about six");
  app->add_flag(
      "--fresh-memory", options->fresh_memory,
      "return freed memory to the system, as glibc does by default, so that page faults are measured too");
  app->add_option("--threads", options->threads, "threads; with 2 or more, one thread is measured too")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--shapes", options->shapes,
                  "other shapes: NxCxHxW (as nchw and nhwc) or NxC (dense), separated by commas")
      ->type_name("LIST");
  app->add_option("--simd", options->simd,
                  "run our kernels on this instruction set, such as AVX2 [the best of this CPU]")
      ->type_name("TARGET");
  app->add_option("--json", options->json, "also write all figures to this file")->type_name("FILE");
  app->add_flag("--force", options->force,
                "let --json replace a file that is no output of 'renorm bench layer'");
  return {app, [options] { run(*options); }};
}

}  // namespace renorm::cli
