// Interleaved timing: every competitor once a round, in a new order each round, so that nobody always
// finds the caches as the same predecessor left them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace renorm::bench {

struct Competitor {
  std::string name;
  std::function<void()> run;
  int threads = 0;  // 0: as many as the run has
};

// Seconds a call.
struct Figure {
  double best;
  double median;
  double spread;  // third less first quartile
  int samples;
  int calls;  // a sample
};
using Figures = std::map<std::string, Figure>;

struct Effort {
  double seconds;    // stop after the round in which this is passed
  int least_rounds;  // but not before
  int most_rounds;
};

// Times the competitors with `threads` threads. The first one sets how many calls make a sample: enough of
// its calls for kLeastSample, so that every competitor is called equally often in a row.
//
// One thread: CPU time of the process, which leaves out preemption and counts whatever threads a peer may
// start behind our back. More: wall time.
inline constexpr double kLeastSample = 0.3e-3;
Figures measure(const std::vector<Competitor>& competitors, const Effort& effort, int threads);

}  // namespace renorm::bench
