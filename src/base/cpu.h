// A gap in what some virtual machines report of their CPU.
#pragma once

#include <cstdint>
#include <string>

namespace renorm {

// Answers of the CPUID instruction.
struct CpuReport {
  bool has_amx = false;          // leaf 7
  uint32_t max_tile_layout = 0;  // leaf 0x1D; 0 if there is no such leaf
};
CpuReport cpu_report();

// AMX is reported without a layout of its tiles. oneDNN 2.6 then loads no layout, and its first bfloat16
// convolution ends the process by SIGILL.
bool has_incomplete_amx(const CpuReport& report);

// On such a machine, keeps oneDNN from using AMX by its environment variable, unless the user has set it.
// oneDNN reads it once, when it first computes. Returns whether the machine is such a one.
bool avoid_incomplete_amx();

// The variable by which oneDNN is kept from newer instructions, as "NAME=VALUE"; "" if there is none.
std::string onednn_limit();

}  // namespace renorm
