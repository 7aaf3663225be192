#include "cli/reproduce_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace renorm::cli {
namespace {

constexpr int kBar = 24;

std::string bar(double share) {
  const int full = static_cast<int>(std::floor(std::clamp(share, 0.0, 1.0) * kBar));
  std::string text;
  for (int i = 0; i < kBar; ++i) text += i < full ? "█" : "·";
  return text;
}

double share_of(int64_t done, int64_t all) {
  return all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 0.0;
}

std::string state_of(const experiments::ArmView& arm) {
  if (arm.runs_done == arm.runs) return "done";
  if (!arm.running && arm.steps_done == 0) return "waits";
  return arm.seconds_left < 0.0 ? "starts" : duration_text(arm.seconds_left) + " left";
}

std::string row(const experiments::ArmView& arm, size_t width) {
  const double share = share_of(arm.steps_done, arm.steps);
  return fmt::format("{:<{}}  {} {:>4.0f} %  {:>6}  {}", arm.name, width, bar(share), 100.0 * share,
                     arm.accuracy < 0.0 ? "-" : fmt::format("{:.1f}", arm.accuracy), state_of(arm));
}

}  // namespace

void ReproduceView::prepares(const std::string& data) {
  progress_.show(fmt::format("preparing {}", printable(data)));
}

void ReproduceView::begins(int64_t runs, int64_t finished) {
  runs_ = runs;
  runs_done_ = finished;
  if (finished > 0) progress_.print(fmt::format("{} of {} runs are finished from before", finished, runs));
}

void ReproduceView::run_started(const std::string& arm, uint64_t seed, int64_t from_step) {
  if (progress_.on_terminal()) return;
  progress_.print(fmt::format("{}, seed {}: {}", arm, seed,
                              from_step > 0 ? fmt::format("goes on from step {}", from_step) : "starts"));
}

void ReproduceView::run_finished(const std::string& arm, uint64_t seed, double accuracy, double seconds) {
  ++runs_done_;
  if (progress_.on_terminal()) return;
  progress_.print(fmt::format("{}, seed {}: {:.2f} % in {} ({} of {} runs)", arm, seed, accuracy,
                              duration_text(seconds), runs_done_, runs_));
}

void ReproduceView::run_failed(const std::string& sentence) { progress_.print(sentence); }

void ReproduceView::stops() { progress_.print("stopping: the runs save themselves; again to end at once"); }

void ReproduceView::changed(const std::vector<experiments::ArmView>& arms, double seconds_left) {
  if (!progress_.on_terminal()) return;
  size_t width = 3;
  for (const experiments::ArmView& arm : arms) width = std::max(width, arm.name.size());
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}, {} left", duration_text(watch_.seconds()),
                              seconds_left < 0.0 ? "?" : duration_text(seconds_left)));
  lines.push_back(fmt::format("{:<{}}  {:<{}}  {:>12}", "arm", width, "progress", kBar, "test %"));
  for (const experiments::ArmView& arm : arms) lines.push_back(row(arm, width));
  progress_.show_lines(lines);
}

}  // namespace renorm::cli
