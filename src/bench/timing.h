// Interleaved timing: every competitor once per round, in a new order each round, so that the state of the
// caches favours none.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace renorm::bench {

struct Competitor {
  std::string name;
  std::function<void()> run;
  int threads = 0;  // 0: those of the run
};

// Seconds per call.
struct Figure {
  double best;
  double median;
  double spread;  // between the quartiles
  int samples;
  int calls;  // per sample
};
using Figures = std::map<std::string, Figure>;

struct Effort {
  double seconds;  // stop after the round that exceeds this, but
  int min_rounds;  // not before
  int max_rounds;
};

// Times the competitors with `threads` threads. A sample has the same number of calls for all: as many as the
// first competitor needs for kMinSampleSeconds.
//
// One thread: CPU time of the process, which excludes preemption and includes threads that a peer may start.
// More threads: wall time.
inline constexpr double kMinSampleSeconds = 0.3e-3;
Figures measure(const std::vector<Competitor>& competitors, const Effort& effort, int threads);

}  // namespace renorm::bench
