// Preloaded by tools/test-cpus: makes the process take the CPU for an older one.
// LibTorch, oneDNN and OpenBLAS have variables of their own for that, with two gaps that this file closes:
// LibTorch queries libcpuinfo whether bfloat16 convolutions go to oneDNN, and Highway has no variable.
//   PRETEND_NO_AVX512=1     libcpuinfo reports no AVX-512
//   PRETEND_SIMD=NAME       Highway has this target alone
#include <cpuinfo.h>
#include <hwy/targets.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

void hide_avx512() {
  cpuinfo_initialize();
  auto& isa = const_cast<cpuinfo_x86_isa&>(cpuinfo_isa);
  isa.avx512f = isa.avx512cd = isa.avx512dq = isa.avx512bw = isa.avx512vl = isa.avx512bf16 = false;
}

void force_highway(const char* name) {
  const auto supported = hwy::SupportedTargets();
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t target = int64_t{1} << bit;
    if ((supported & target) == 0 || std::strcmp(name, hwy::TargetName(target)) != 0) continue;
    hwy::DisableTargets(~target);  // also holds after a test forced a target and put the choice back
    return;
  }
  std::fprintf(stderr, "pretend_cpu: this CPU has no target '%s'\n", name);
  std::abort();
}

__attribute__((constructor)) void pretend() {
  if (std::getenv("PRETEND_NO_AVX512") != nullptr) hide_avx512();
  if (const char* name = std::getenv("PRETEND_SIMD")) force_highway(name);
}

}  // namespace
