// How this process was launched: alone, or as one of several by an engine such as mpirun.
#pragma once

#include <functional>
#include <string>

namespace renorm::dist {

struct Launch {
  int rank = 0;         // 0 .. size - 1
  int size = 1;         // processes in all
  int local_size = 1;   // processes on this machine; 1 if the engine does not tell
  std::string engine;   // "mpirun", "srun", "torchrun" or "RANK and WORLD_SIZE"; empty if alone
  std::string job;      // equal in all processes of a launch and different in other launches; may be empty
  std::string address;  // HOST:PORT of MASTER_ADDR and MASTER_PORT; may be empty
  // torchrun listens at the address itself.
  bool engine_listens = false;

  bool is_alone() const { return size == 1; }
  bool is_on_one_machine() const { return local_size == size; }
};

// The value of an environment variable, or null.
using Environment = std::function<const char*(const char* name)>;

// Reads the variables of Open MPI, Slurm, and torchrun or a user (RANK, WORLD_SIZE, LOCAL_WORLD_SIZE,
// MASTER_ADDR, MASTER_PORT), in this order. Throws UsageError if they are incomplete.
Launch launch_of(const Environment& environment);
// Of this process.
Launch launch_of_process();

// The threads of each of `processes` on a machine if nothing else is set: CPUs / processes, at least one, at
// most those that the process may use.
int threads_per_process(int processes);

}  // namespace renorm::dist
