// renorm doctor: what this machine and installation are, what is wrong with them and how to mend it.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "base/timing.h"
#include "cli/core/commands.h"
#include "cli/core/system_probe.h"
#include "kernels/kernels.h"

namespace renorm::cli {
namespace {

struct Finding {
  std::string name;
  std::string value;
  std::string remedy = {};  // "" if all is well
};

constexpr double kGigabyte = 1e9;
constexpr double kLittleMemory = 1e9;
// The reference BLAS makes about one; a core of the last ten years makes twenty and more.
constexpr double kSlowProduct = 5e9;

Finding simd() {
  const std::vector<std::string> runnable = kernels::runnable_simd_targets();
  Finding finding{"simd", fmt::format("{}; compiled for this CPU: {}", kernels::simd_target(),
                                      fmt::join(runnable, ", "))};
  if (kernels::simd_target() == "EMU128" || kernels::simd_target() == "SCALAR") {
    finding.remedy = "the kernels run without vectors: build on a CPU and compiler that Highway knows";
  }
  return finding;
}

Finding cpus() {
  const double quota = cpus_by_quota();
  const int affinity = cpus_by_affinity();
  Finding finding{"cpus", fmt::format("{} of {} may be used", affinity, std::thread::hardware_concurrency())};
  if (quota > 0.0) finding.value += fmt::format(", time of {} granted by the control group", shortest(quota));
  if (quota > 0.0 && quota < affinity) {
    finding.remedy = fmt::format(
        "more threads than granted CPUs wait for each other: give --threads {}, or raise the limit",
        std::max(1, static_cast<int>(quota)));
  }
  return finding;
}

Finding threads() {
  const char* variable = std::getenv("OMP_NUM_THREADS");
  const int used = at::get_num_threads(), available = cpus_by_affinity();
  Finding finding{"threads", fmt::format("{}, OMP_NUM_THREADS {}", used,
                                         variable == nullptr ? "not set" : "= " + printable(variable))};
  if (used < available) {
    finding.remedy = fmt::format("only {} of {} CPUs work: unset OMP_NUM_THREADS or set it to {}", used,
                                 available, available);
  } else if (used > available) {
    finding.remedy =
        fmt::format("{} threads share {} CPUs and wait for each other: set OMP_NUM_THREADS to {}", used,
                    available, available);
  }
  return finding;
}

Finding parallel() {
  const int wanted = at::get_num_threads();
  std::mutex mutex;
  std::set<std::thread::id> seen;
  // Each part lasts long enough for the others to start.
  at::parallel_for(0, wanted, 1, [&](int64_t, int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const std::lock_guard<std::mutex> lock(mutex);
    seen.insert(std::this_thread::get_id());
  });
  Finding finding{"parallel_for", fmt::format("runs on {} of {} threads", seen.size(), wanted)};
  if (static_cast<int>(seen.size()) < wanted) {
    finding.remedy =
        "at::parallel_for is serial here: build with OpenMP (g++ -fopenmp) and libgomp1 installed";
  }
  return finding;
}

Finding blas() {
  // The library that holds LibTorch's own code is the one that calls BLAS.
  const std::string file = blas_file(reinterpret_cast<const void*>(&at::get_num_threads));
  if (file.empty()) {
    return {"blas", at::hasMKL() ? "MKL, inside LibTorch" : "inside LibTorch"};
  }
  Finding finding{"blas", file};
  const std::string install = "apt-get install libopenblas0-openmp";
  switch (blas_kind(file)) {
    case Blas::kReference:
      finding.value += " (reference BLAS)";
      finding.remedy = "20 to 30 times slower than an optimised one: " + install;
      break;
    case Blas::kOpenBlasThreads:
      finding.remedy = "its threads compete with LibTorch's for the CPUs: " + install;
      break;
    case Blas::kOpenBlasSerial:
      finding.remedy = "it uses one CPU: " + install;
      break;
    case Blas::kOpenMp:
    case Blas::kOther:
      break;
  }
  return finding;
}

Finding onednn() {
  if (at::hasMKLDNN()) return {"onednn", "used by LibTorch for convolutions"};
  return {"onednn", "not in this LibTorch: convolutions go through BLAS",
          "convolutions are slower: use a LibTorch that was built with it"};
}

Finding product() {
  constexpr int64_t kSide = 512;
  constexpr int kRounds = 5;
  const torch::NoGradGuard no_grad;
  const torch::Tensor a = torch::ones({kSide, kSide}), b = torch::ones({kSide, kSide});
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const Stopwatch watch;
    const torch::Tensor c = at::mm(a, b);
    best = std::min(best, watch.seconds());
  }
  const double speed = 2.0 * kSide * kSide * kSide / best;
  Finding finding{"matmul", fmt::format("{0}x{0} in {1:.2f} ms, {2:.0f} GFLOP/s on {3} threads", kSide,
                                        1e3 * best, speed / 1e9, at::get_num_threads())};
  if (speed < kSlowProduct) {
    finding.remedy = "slow: see blas above, and whether other programs keep the CPUs busy";
  }
  return finding;
}

Finding memory() {
  const auto bytes = static_cast<double>(available_memory());
  if (bytes < 0.0) return {"memory", "unknown"};
  Finding finding{"memory", fmt::format("{:.1f} GB available", bytes / kGigabyte)};
  if (bytes < kLittleMemory) {
    finding.remedy = "training may be killed: close other programs, or give a smaller --chunk";
  }
  return finding;
}

Finding pages() {
  const std::string mode = huge_pages();
  Finding finding{"huge pages", mode.empty() ? "none in this kernel" : mode};
  if (mode == "never") {
    finding.remedy =
        "large tensors cost more page faults: echo madvise > "
        "/sys/kernel/mm/transparent_hugepage/enabled";
  }
  return finding;
}

Finding load() {
  const double average = load_average();
  const int available = cpus_by_affinity();
  Finding finding{"load", average < 0.0 ? "unknown" : fmt::format("{:.2f} in the last minute", average)};
  if (average > available) {
    finding.remedy = "other programs keep the CPUs busy: training is slower and timings mean little";
  }
  return finding;
}

Finding cache() try {
  const std::string folder = cache_folder();
  Finding finding{"cache", printable(folder) + ", writable"};
  make_writable_folder(folder);
  return finding;
} catch (const std::runtime_error& error) {
  return {"cache", error.what(),
          "generated data is made anew each time: set RENORM_CACHE to a folder that can be written"};
}

std::vector<Finding> examine() {
  const std::vector<std::string> features = cpu_features();
  return {
      {"renorm", RENORM_VERSION},
      {"libtorch", TORCH_VERSION},
      {"compiler", fmt::format("{} {}, C++ {}",
#ifdef __clang__
                               "Clang",
#else
                               "GCC",
#endif
                               __VERSION__, __cplusplus / 100)},
      {"cpu", printable(cpu_model())},
      {"features", features.empty() ? "none that matter here" : fmt::format("{}", fmt::join(features, ", "))},
      simd(),
      cpus(),
      threads(),
      parallel(),
      blas(),
      onednn(),
      product(),
      memory(),
      pages(),
      load(),
      cache()};
}

void print_json(const std::vector<Finding>& findings) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  bool ok = true;
  for (const Finding& finding : findings) {
    ok = ok && finding.remedy.empty();
    list.push_back({{"name", finding.name},
                    {"ok", finding.remedy.empty()},
                    {"value", finding.value},
                    {"remedy", finding.remedy.empty() ? Json(nullptr) : Json(finding.remedy)}});
  }
  const Json json = {{"ok", ok}, {"findings", list}};
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_table(const std::vector<Finding>& findings) {
  int64_t wrong = 0;
  for (const Finding& finding : findings) {
    const bool ok = finding.remedy.empty();
    fmt::print("{:<4}{:<14}{}\n", ok ? "ok" : "!", finding.name, finding.value);
    if (ok) continue;
    fmt::print("{:<18}{}\n", "", finding.remedy);
    ++wrong;
  }
  fmt::print("\n{}\n", wrong == 0 ? "All is well."
                                  : fmt::format("{} finding{} to look at, marked with !", wrong,
                                                wrong == 1 ? "" : "s"));
}

}  // namespace

void run_doctor(const DoctorOptions& options) {
  const std::vector<Finding> findings = examine();
  if (options.json) {
    print_json(findings);
  } else {
    print_table(findings);
  }
}

}  // namespace renorm::cli
