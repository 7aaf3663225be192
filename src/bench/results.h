// The results of `renorm bench layer`, as a table and as JSON.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/timing.h"

namespace renorm::bench {

// The machine of the measurement.
struct Machine {
  std::string cpu;
  int cpus;
  std::string simd_target;
  std::string libtorch;
  std::string onednn;  // "" if the program was built without it
};

Machine this_machine();

struct CaseResult {
  Case shape_and_layout;
  std::map<Pass, Figures> passes;
};

struct Results {
  Machine machine;
  int threads;
  bool quick;
  bool fresh_memory;  // freed memory goes back to the system
  std::vector<CaseResult> cases;
};

// For reading, at most 100 columns wide.
std::string to_table(const Results& results);

// geomean.<layout>.<pass>.<ratio> (and `large`, the same over large tensors only), machine, and the raw
// figures of every case in milliseconds.
std::string to_json(const Results& results);

}  // namespace renorm::bench
