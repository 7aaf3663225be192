// Ends the program with one sentence where its libraries would not get the memory that they need. Without it
// OpenBLAS tries again without end, LibTorch aborts, and oneDNN uses a null pointer.
#include "cli/start_memory.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

#include "base/address_space.h"
#include "base/errors.h"

// The sanitizers map terabytes themselves, so their builds cannot run under a limit.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace renorm::cli {
namespace {

// For the initializers of LibTorch and its dependencies; 45 MB were measured with LibTorch 1.13.
constexpr size_t kLibraryBytes = size_t{64} << 20;

constexpr char kSentence[] =
    "renorm: not enough memory for LibTorch and BLAS to start; raise the limit 'ulimit -v', or set "
    "OMP_NUM_THREADS=1\n";

constexpr char kFaultSentence[] =
    "renorm: a library failed, probably for lack of memory; raise the limit 'ulimit -v', or use a smaller "
    "model or smaller batches\n";

// With so much left, a fault has another reason.
constexpr size_t kPlentyBytes = size_t{256} << 20;

// Two threads may fail at once; the first one writes and ends the process.
extern "C" void end_by_fault(int fault) {
  if (has_address_space(kPlentyBytes)) {
    std::signal(fault, SIG_DFL);
    raise(fault);
    return;
  }
  static std::atomic<bool> is_reported{false};
  if (is_reported.exchange(true)) pause();
  if (write(STDERR_FILENO, kFaultSentence, sizeof kFaultSentence - 1) < 0) {
  }
  _exit(kExitInternal);
}

// The value of a variable as a number of threads; 0 if it is not set or no number.
int number_of(char** environment, const char* name) {
  const size_t length = std::strlen(name);
  for (; *environment != nullptr; ++environment) {
    const char* text = *environment;
    if (std::strncmp(text, name, length) != 0 || text[length] != '=') continue;
    int number = 0;
    for (text += length + 1; *text >= '0' && *text <= '9' && number < 10000; ++text) {
      number = 10 * number + (*text - '0');
    }
    return number;
  }
  return 0;
}

// The number of threads for which OpenBLAS allocates buffers when it is loaded; 0 without OpenBLAS.
int blas_threads(char** environment) {
  if (dlsym(RTLD_DEFAULT, "openblas_get_num_threads") == nullptr) return 0;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 1;
  const int available = CPU_COUNT(&cpus);
  for (const char* name : {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const int number = number_of(environment, name);
    if (number > 0) return number < available ? number : available;
  }
  return available;
}

void check_start_memory(int /*argc*/, char** /*argv*/, char** environment) {
  const auto buffers = static_cast<size_t>(blas_threads(environment));
  if (has_address_space(kLibraryBytes + buffers * kBlasBufferBytes)) return;
  if (write(STDERR_FILENO, kSentence, sizeof kSentence - 1) < 0) {
  }
  _exit(kExitInternal);
}
// Called before the initializers of all shared libraries.
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBeforeLibraries)(int, char**,
                                                                             char**) = check_start_memory;

}  // namespace

void explain_faults_under_a_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  struct sigaction action = {};
  action.sa_handler = end_by_fault;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace renorm::cli

#else

void renorm::cli::explain_faults_under_a_limit() {}

#endif
