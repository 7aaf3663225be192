#include "bench/machine.h"

#include <torch/version.h>

#include <fstream>
#include <thread>

#include "bench/onednn.h"
#include "kernels/kernels.h"

namespace renorm::bench {
namespace {

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

Machine this_machine() {
  return {cpu_model(), static_cast<int>(std::thread::hardware_concurrency()), kernels::simd_target(),
          TORCH_VERSION, onednn_version()};
}

}  // namespace renorm::bench
