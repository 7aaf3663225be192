#include "dist/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "base/checksum.h"
#include "base/errors.h"
#include "base/text.h"

namespace renorm::dist {
namespace {

constexpr int64_t kMaxProcesses = 1 << 20;
constexpr size_t kJobDigits = 16;

std::string value_of(const Environment& environment, const char* name) {
  const char* value = name == nullptr ? nullptr : environment(name);
  return value == nullptr ? "" : value;
}

int number_of(const Environment& environment, const char* name, int64_t min, int64_t max) {
  const std::string value = value_of(environment, name);
  if (value.empty()) throw UsageError(fmt::format("the environment variable {} is missing", name));
  return static_cast<int>(parse_integer(value, fmt::format("the environment variable {}", name), min, max));
}

int number_or(const Environment& environment, const char* name, int64_t min, int64_t max, int missing) {
  return value_of(environment, name).empty() ? missing : number_of(environment, name, min, max);
}

// The names of an engine's variables; null where it has none.
struct Names {
  const char* rank;
  const char* size;
  const char* local_size;
};

void read_ranks(const Environment& environment, const Names& names, Launch* launch) {
  launch->size = number_of(environment, names.size, 1, kMaxProcesses);
  launch->rank = number_of(environment, names.rank, 0, launch->size - 1);
  launch->local_size = number_or(environment, names.local_size, 1, launch->size, 1);
}

// "4(x2),3": the processes on each machine, in order. 1 if it is unknown.
int slurm_local_size(const std::string& text, int machine) {
  if (text.empty()) return 1;
  int first = 0;
  for (const std::string& piece : split(text, ',')) {
    const size_t bracket = piece.find("(x");
    const std::string what = "the environment variable SLURM_STEP_TASKS_PER_NODE";
    const auto tasks = static_cast<int>(parse_integer(piece.substr(0, bracket), what, 1, kMaxProcesses));
    int64_t machines = 1;
    if (bracket != std::string::npos) {
      machines = parse_integer(piece.substr(bracket + 2, piece.size() - bracket - 3), what, 1, kMaxProcesses);
    }
    first += static_cast<int>(machines);
    if (machine < first) return tasks;
  }
  return 1;
}

// A name without the characters that a path cannot have.
std::string job_of(const Environment& environment, std::initializer_list<const char*> names) {
  std::string text;
  for (const char* name : names) {
    const std::string value = value_of(environment, name);
    if (!value.empty()) text += fmt::format("{}={}\n", name, value);
  }
  return text.empty() ? "" : sha256(text).substr(0, kJobDigits);
}

void read_address(const Environment& environment, Launch* launch) {
  const std::string host = value_of(environment, "MASTER_ADDR");
  const std::string port = value_of(environment, "MASTER_PORT");
  if (host.empty() != port.empty()) {
    throw UsageError(
        fmt::format("the environment variable {} is missing; set both, MASTER_ADDR and MASTER_PORT",
                    host.empty() ? "MASTER_ADDR" : "MASTER_PORT"));
  }
  if (!host.empty()) launch->address = host + ":" + port;
}

}  // namespace

Launch launch_of(const Environment& environment) {
  const auto has = [&](const char* name) { return !value_of(environment, name).empty(); };
  Launch launch;
  if (has("OMPI_COMM_WORLD_SIZE")) {
    launch.engine = "mpirun";
    read_ranks(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
               &launch);
    launch.job = job_of(environment, {"PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports"});
  } else if (has("SLURM_STEP_NUM_TASKS") && has("SLURM_PROCID")) {
    launch.engine = "srun";
    read_ranks(environment, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr}, &launch);
    launch.local_size = slurm_local_size(value_of(environment, "SLURM_STEP_TASKS_PER_NODE"),
                                         number_or(environment, "SLURM_NODEID", 0, kMaxProcesses, 0));
    launch.job = job_of(environment, {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"});
  } else if (has("WORLD_SIZE") || has("RANK")) {
    launch.engine = has("TORCHELASTIC_RUN_ID") ? "torchrun" : "RANK and WORLD_SIZE";
    read_ranks(environment, {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}, &launch);
    launch.job = job_of(environment, {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"});
    launch.engine_listens = value_of(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  } else {
    return launch;
  }
  read_address(environment, &launch);
  return launch;
}

Launch launch_of_process() {
  return launch_of([](const char* name) -> const char* { return std::getenv(name); });
}

int threads_per_process(int processes) {
  const auto usable = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const auto cpus = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  return std::clamp(cpus / processes, 1, usable);
}

}  // namespace renorm::dist
