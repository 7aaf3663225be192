#include "base/cpu.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <cstdlib>

namespace renorm {

CpuReport cpu_report() {
  CpuReport report;
#ifdef __x86_64__
  constexpr uint32_t kFeatures = 0x7, kTiles = 0x1D, kAmxTile = uint32_t{1} << 24;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  // They return 0 for a leaf above the CPU's last one.
  if (__get_cpuid_count(kFeatures, 0, &eax, &ebx, &ecx, &edx) != 0) report.has_amx = (edx & kAmxTile) != 0;
  if (__get_cpuid_count(kTiles, 0, &eax, &ebx, &ecx, &edx) != 0) report.max_tile_layout = eax;
#endif
  return report;
}

bool has_incomplete_amx(const CpuReport& report) { return report.has_amx && report.max_tile_layout == 0; }

bool avoid_incomplete_amx() {
  if (!has_incomplete_amx(cpu_report())) return false;
  if (std::getenv("ONEDNN_MAX_CPU_ISA") == nullptr) {
    setenv("DNNL_MAX_CPU_ISA", "AVX512_CORE_BF16", /*overwrite=*/0);
  }
  return true;
}

std::string onednn_limit() {
  // oneDNN looks for them in this order.
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    if (const char* value = std::getenv(name)) return std::string(name) + "=" + value;
  }
  return "";
}

}  // namespace renorm
