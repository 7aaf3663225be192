// Training steps shared by several processes: what a process measures, and what that says about many.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dist/group.h"
#include "train/step_result.h"

namespace renorm::bench {

struct WorkersOptions {
  std::string model = "inception-small";
  std::string data = "strokes";
  int64_t minibatch = 32;
  int64_t workers = 2;
  int64_t steps = 60;  // timed steps per round
  int threads = 1;     // of this process
};

// Of one process. All but `step_seconds` are medians over the steps.
struct WorkerTimes {
  std::vector<double> step_seconds;
  train::StepTimes parts;        // `wait` is for sums over the processes, after the backward pass
  int64_t bytes = 0;             // summed per step
  int64_t gradient_bytes = 0;    // of all parameters
  int64_t statistics_bytes = 0;  // what the layers collect in a step
  int64_t sums = 0;              // per step
};

// Runs the steps. `group` is null for one process.
WorkerTimes measure_steps(const WorkersOptions& options, dist::Group* group);

// A sum over two processes takes 2 * latency + bytes / bandwidth.
struct Network {
  double latency = 0.0;    // seconds per message
  double bandwidth = 0.0;  // bytes per second
};
Network measure_network(dist::Group& group);  // of two processes

// A projection for n processes.
struct Projection {
  int64_t processes = 0;
  double bound = 0.0;       // seconds: 2 (n - 1) / n * bytes / bandwidth, the least for any ring
  double sums = 0.0;        // seconds of all sums: the bound and 2 (n - 1) latencies per sum
  double step = 0.0;        // seconds, if sums hide behind the backward pass as far as with two processes
  double efficiency = 0.0;  // time without communication / step
};
// `times` of one of two processes.
Projection project(int64_t processes, const WorkerTimes& times, const Network& network);

}  // namespace renorm::bench
