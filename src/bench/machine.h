// What the figures were measured on.
#pragma once

#include <string>

namespace renorm::bench {

struct Machine {
  std::string cpu;
  int cpus;
  std::string simd_target;
  std::string libtorch;
  std::string onednn;  // "" without
};

Machine this_machine();

}  // namespace renorm::bench
