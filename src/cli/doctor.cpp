// renorm doctor: what slows training down on this machine and installation, and how to fix it.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/private_folder.h"
#include "base/text.h"
#include "cli/blas.h"
#include "cli/commands.h"
#include "dist/launch.h"
#include "dist/rendezvous.h"
#include "kernels/kernels.h"
#include "models/bfloat16.h"
#include "train/threads.h"

namespace renorm::cli {
namespace {

struct Finding {
  std::string name;
  std::string value;
  std::string remedy = {};  // "" if there is no problem
};

Finding simd() {
  const std::vector<std::string> runnable = kernels::runnable_simd_targets();
  Finding finding{"simd", fmt::format("{}; compiled for this CPU: {}", kernels::simd_target(),
                                      fmt::join(runnable, ", "))};
  if (kernels::simd_target() == "EMU128" || kernels::simd_target() == "SCALAR") {
    finding.remedy = "the kernels run without vectors: build with a compiler and CPU that Highway supports";
  }
  return finding;
}

// CPUs that this process may run on.
int available_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) return CPU_COUNT(&cpus);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Finding threads() {
  const char* variable = std::getenv("OMP_NUM_THREADS");
  const int used = at::get_num_threads(), available = available_cpus();
  Finding finding{"threads", fmt::format("{} of {} CPUs, OMP_NUM_THREADS {}", used, available,
                                         variable == nullptr ? "not set" : "= " + printable(variable))};
  if (used < available) {
    finding.remedy =
        fmt::format("{} CPUs are idle: unset OMP_NUM_THREADS or set it to {}", available - used, available);
  } else if (used > available) {
    finding.remedy = fmt::format("more threads than CPUs: set OMP_NUM_THREADS to {}", available);
  }
  return finding;
}

Finding blas() {
  // at::get_num_threads is in the library that calls BLAS.
  const std::string file = blas_file(reinterpret_cast<const void*>(&at::get_num_threads));
  if (file.empty()) return {"blas", at::hasMKL() ? "MKL, inside LibTorch" : "inside LibTorch"};
  Finding finding{"blas", file};
  const std::string install = "apt-get install libopenblas0-openmp";
  switch (blas_kind(file)) {
    case Blas::kReference:
      finding.value += " (reference BLAS)";
      finding.remedy = "20 to 30 times slower than an optimized one: " + install;
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
  if (at::hasMKLDNN()) {
    Finding finding{"onednn", "used by LibTorch for convolutions"};
    if (has_incomplete_amx(cpu_report())) {
      finding.value += fmt::format("; AMX is reported incompletely here, {} is in effect", onednn_limit());
    }
    return finding;
  }
  return {"onednn", "not in this LibTorch", "convolutions are slower: use a LibTorch built with oneDNN"};
}

Finding bfloat16() {
  train::use_threads(at::get_num_threads());
  const models::BFloat16Cost nchw = models::measure_bfloat16(torch::MemoryFormat::Contiguous);
  const models::BFloat16Cost last = models::measure_bfloat16(torch::MemoryFormat::ChannelsLast);
  if (!nchw.is_available || !last.is_available) {
    return {"bf16", "not available: LibTorch refuses bfloat16 convolutions", "train in float"};
  }
  Finding finding{
      "bf16", fmt::format("{:.1f} (nchw) and {:.1f} (channels-last) times as long as float, {}",
                          nchw.time_ratio, last.time_ratio,
                          nchw.exact_sums && last.exact_sums ? "sums in float" : "sums rounded to 8 bits")};
  if (!nchw.is_useful() || !last.is_useful()) {
    finding.remedy = "train in float: --dtype bf16 costs more than it saves on this CPU";
  }
  return finding;
}

bool is_on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "" : path, ':')) {
    if (::access(fmt::format("{}/{}", folder, program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// The engine that this process runs under, and what `renorm train` lacks to meet the other processes.
Finding processes() try {
  const dist::Launch launch = dist::launch_of_process();
  if (launch.is_alone()) {
    return {"processes", is_on_path("mpirun") ? "one; mpirun can start more"
                                              : "one; to start more, apt-get install openmpi-bin"};
  }
  Finding finding{"processes", fmt::format("rank {} of {} by {}, {} on this machine", launch.rank,
                                           launch.size, launch.engine, launch.local_size)};
  try {
    const dist::Rendezvous rendezvous = dist::rendezvous_of(launch, "", "DIR");
    finding.value += fmt::format(", to meet at {}", printable(rendezvous.text()));
  } catch (const UsageError& error) {
    finding.remedy = error.what();
  }
  return finding;
} catch (const UsageError& error) {
  return {"processes", "unknown", error.what()};
}

Finding cache() try {
  const std::string folder = cache_folder();
  make_private_folder(folder);
  return {"cache", printable(folder) + ", writable"};
} catch (const std::runtime_error& error) {
  return {"cache", error.what(),
          "data is generated anew each time: set RENORM_CACHE to a folder to which you and nobody else can "
          "write"};
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

void print_text(const std::vector<Finding>& findings) {
  int64_t problems = 0;
  for (const Finding& finding : findings) {
    const bool ok = finding.remedy.empty();
    fmt::print("{:<4}{:<10}{}\n", ok ? "ok" : "!", finding.name, finding.value);
    if (ok) continue;
    fmt::print("{:<14}{}\n", "", finding.remedy);
    ++problems;
  }
  fmt::print("\n{}\n", problems == 0 ? "No problems found."
                                     : fmt::format("{} problem{} found, marked with !", problems,
                                                   problems == 1 ? "" : "s"));
}

void run(bool json) {
  const std::vector<Finding> findings = {{"renorm", RENORM_VERSION},
                                         {"libtorch", TORCH_VERSION},
                                         simd(),
                                         threads(),
                                         blas(),
                                         onednn(),
                                         bfloat16(),
                                         processes(),
                                         cache()};
  if (json) {
    print_json(findings);
  } else {
    print_text(findings);
  }
}

}  // namespace

Command add_doctor(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "doctor",
      "Check SIMD target, threads, BLAS, bfloat16, processes and cache folder, with remedies for problems");
  const auto json = std::make_shared<bool>(false);
  app->add_flag("--json", *json, "print JSON instead of a table");
  app->footer("Problems do not change the exit code.");
  return {app, [json] { run(*json); }};
}

}  // namespace renorm::cli
