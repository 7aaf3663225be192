#include "bench/timing.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <numeric>
#include <random>

#include "base/timing.h"

namespace renorm::bench {
namespace {

constexpr int kMaxCalls = 1000;
constexpr int kCalibrationRuns = 3;
constexpr unsigned kOrderSeed = 1;

double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_per_call(const Competitor& competitor, int calls, clockid_t clock) {
  const double start = now(clock);
  for (int i = 0; i < calls; ++i) competitor.run();
  return (now(clock) - start) / calls;
}

void use_threads(const Competitor& competitor, int threads) {
  const int count = competitor.threads > 0 ? competitor.threads : threads;
  if (at::get_num_threads() != count) at::set_num_threads(count);
}

int calls_per_sample(const Competitor& competitor, clockid_t clock) {
  double best = seconds_per_call(competitor, 1, clock);
  for (int i = 1; i < kCalibrationRuns; ++i) best = std::min(best, seconds_per_call(competitor, 1, clock));
  return static_cast<int>(
      std::clamp(std::ceil(kMinSampleSeconds / std::max(best, 1e-9)), 1.0, double{kMaxCalls}));
}

// Interpolates linearly. `samples` are sorted.
double quantile(const std::vector<double>& samples, double part) {
  const double place = part * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (place - static_cast<double>(below)) * (samples[above] - samples[below]);
}

Figure figure_of(std::vector<double> samples, int calls) {
  std::sort(samples.begin(), samples.end());
  return {samples.front(), median(samples), quantile(samples, 0.75) - quantile(samples, 0.25),
          static_cast<int>(samples.size()), calls};
}

}  // namespace

Figures measure(const std::vector<Competitor>& competitors, const Effort& effort, int threads) {
  const clockid_t clock = threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
  use_threads(competitors.front(), threads);
  const int calls = calls_per_sample(competitors.front(), clock);
  std::vector<std::vector<double>> samples(competitors.size());
  std::vector<size_t> order(competitors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(kOrderSeed);
  const double start = now(CLOCK_MONOTONIC);
  for (int round = 0; round < effort.max_rounds; ++round) {
    if (round >= effort.min_rounds && now(CLOCK_MONOTONIC) - start > effort.seconds) break;
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t turn : order) {
      use_threads(competitors[turn], threads);
      samples[turn].push_back(seconds_per_call(competitors[turn], calls, clock));
    }
  }
  Figures figures;
  for (size_t i = 0; i < competitors.size(); ++i) {
    figures[competitors[i].name] = figure_of(std::move(samples[i]), calls);
  }
  return figures;
}

}  // namespace renorm::bench
