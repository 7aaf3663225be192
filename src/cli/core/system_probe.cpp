#include "cli/core/system_probe.h"

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

namespace renorm::cli {
namespace {

// What follows the colon in the first line that starts with `name`.
std::string value_of(const std::string& file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (line.rfind(name, 0) != 0 || colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::string first_line(const std::string& file) {
  std::ifstream lines(file);
  std::string line;
  std::getline(lines, line);
  return line;
}

// The path of this process' group: of `controller` in version 1, of the unified tree for "".
std::string group_path(const std::string& root, const std::string& controller) {
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::istringstream names(line.substr(first + 1, second - first - 1));
    std::string name;
    bool found = controller.empty() && second == first + 1;
    while (!found && std::getline(names, name, ',')) found = !controller.empty() && name == controller;
    if (found) return line.substr(second + 1);
  }
  return "/";
}

// A file of this process' group; in a container the group is often mounted as the top of the tree.
std::string group_file(const std::string& root, const std::string& controller, const std::string& name) {
  const std::string top = root + "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
  const std::string own = first_line(top + group_path(root, controller) + "/" + name);
  return own.empty() ? first_line(top + "/" + name) : own;
}

std::optional<int64_t> number(const std::string& text) {
  int64_t value = 0;
  std::istringstream stream(text);
  return stream >> value ? std::optional<int64_t>(value) : std::nullopt;
}

// Bytes that the control group leaves.
std::optional<int64_t> memory_left_in_group(const std::string& root) {
  std::optional<int64_t> most = number(group_file(root, "", "memory.max"));
  std::optional<int64_t> used = number(group_file(root, "", "memory.current"));
  if (!most) {
    most = number(group_file(root, "memory", "memory.limit_in_bytes"));
    used = number(group_file(root, "memory", "memory.usage_in_bytes"));
  }
  if (!most) return std::nullopt;
  return std::max<int64_t>(0, *most - used.value_or(0));
}

}  // namespace

std::string cpu_model(const std::string& root) {
  const std::string name = value_of(root + "/proc/cpuinfo", "model name");
  return name.empty() ? "unknown" : name;
}

std::vector<std::string> cpu_features(const std::string& root) {
  constexpr std::array kNames = {"sse4_2",      "avx",      "avx2",  "fma", "f16c", "avx512f",
                                 "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16", "vsx"};
  std::string text = value_of(root + "/proc/cpuinfo", "flags");
  if (text.empty()) text = value_of(root + "/proc/cpuinfo", "Features");
  std::istringstream words(text);
  std::set<std::string> has;
  for (std::string word; words >> word;) has.insert(word);
  std::vector<std::string> features;
  for (const char* name : kNames) {
    if (has.count(name) > 0) features.emplace_back(name);
  }
  return features;
}

int cpus_by_affinity() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) return CPU_COUNT(&cpus);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

double cpus_by_quota(const std::string& root) {
  std::istringstream unified(group_file(root, "", "cpu.max"));  // "max 100000" or "150000 100000"
  double quota = 0.0, period = 0.0;
  if (unified >> quota >> period && period > 0.0) return quota / period;
  const auto old_quota = number(group_file(root, "cpu", "cpu.cfs_quota_us"));  // -1: no limit
  const auto old_period = number(group_file(root, "cpu", "cpu.cfs_period_us"));
  if (old_quota.value_or(0) <= 0 || old_period.value_or(0) <= 0) return 0.0;
  return static_cast<double>(*old_quota) / static_cast<double>(*old_period);
}

int64_t available_memory(const std::string& root) {
  const auto kilobytes = number(value_of(root + "/proc/meminfo", "MemAvailable"));
  if (!kilobytes) return -1;
  const int64_t bytes = *kilobytes * 1024;
  return std::min(bytes, memory_left_in_group(root).value_or(bytes));
}

double load_average(const std::string& root) {
  std::istringstream line(first_line(root + "/proc/loadavg"));
  double load = 0.0;
  return line >> load ? load : -1.0;
}

std::string huge_pages(const std::string& root) {
  const std::string line = first_line(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  const size_t open = line.find('['), close = line.find(']');
  return open == std::string::npos || close == std::string::npos ? ""
                                                                 : line.substr(open + 1, close - open - 1);
}

Blas blas_kind(const std::string& file) {
  const auto has = [&](const char* part) { return file.find(part) != std::string::npos; };
  if (has("openblas-pthread") || has("openblas64-pthread")) return Blas::kOpenBlasThreads;
  if (has("openblas-serial") || has("openblas64-serial")) return Blas::kOpenBlasSerial;
  if (has("openblas-openmp") || has("blis-openmp")) return Blas::kOpenMp;
  // Debian keeps the reference implementation in a folder of this name.
  if (has("/blas/libblas.so")) return Blas::kReference;
  return Blas::kOther;
}

std::string blas_file(const void* address) {
  Dl_info user = {};
  if (dladdr(address, &user) == 0) return "";
  void* library = dlopen(user.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return "";
  // Looks where the user's own calls were looked up: in it, then in what it is linked with.
  const void* product = dlsym(library, "sgemm_");
  dlclose(library);
  Dl_info blas = {};
  if (product == nullptr || dladdr(product, &blas) == 0) return "";
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(blas.dli_fname, error);
  return error ? blas.dli_fname : file.string();
}

}  // namespace renorm::cli
