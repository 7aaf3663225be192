#include "train/clip_records.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

namespace renorm::train {
namespace {

using Summary = ClipTelemetry::Summary;

// Of the values of both, by Chan's formula.
Summary merged(const Summary& a, double a_count, const Summary& b, double b_count) {
  if (a_count == 0.0) return b;
  if (b_count == 0.0) return a;
  const double count = a_count + b_count;
  const double delta = b.mean - a.mean;
  Summary result;
  result.mean = a.mean + delta * (b_count / count);
  const double m2 =
      a.std * a.std * a_count + b.std * b.std * b_count + delta * delta * (a_count * b_count / count);
  result.std = std::sqrt(m2 / count);
  result.min = std::min(a.min, b.min);
  result.max = std::max(a.max, b.max);
  return result;
}

void add(const ClipTelemetry& from, ClipTelemetry* to) {
  const auto count = static_cast<double>(from.values);
  const auto before = static_cast<double>(to->values);
  if (from.values == 0) return;
  const auto mean = [&](double a, double b) { return (a * before + b * count) / (before + count); };
  to->r_clipped_above = mean(to->r_clipped_above, from.r_clipped_above);
  to->r_clipped_below = mean(to->r_clipped_below, from.r_clipped_below);
  to->d_clipped = mean(to->d_clipped, from.d_clipped);
  to->r = merged(to->r, before, from.r, count);
  to->d = merged(to->d, before, from.d, count);
  to->values += from.values;
}

// ClipTelemetry is plain data, and all processes run the same program.
std::vector<ClipTelemetry> over_processes(const std::vector<ClipTelemetry>& own, dist::Group& group) {
  const size_t bytes = own.size() * sizeof(ClipTelemetry);
  std::vector<ClipTelemetry> all(own.size());
  for (const std::string& text : group.gather({reinterpret_cast<const char*>(own.data()), bytes})) {
    std::vector<ClipTelemetry> one(own.size());
    std::memcpy(one.data(), text.data(), bytes);
    for (size_t i = 0; i < all.size(); ++i) add(one[i], &all[i]);
  }
  return all;
}

record::Summary record_of(const Summary& from) { return {from.mean, from.std, from.min, from.max}; }

}  // namespace

std::vector<record::LayerClips> clip_records(const std::vector<NamedLayer>& layers, dist::Group* group) {
  std::vector<ClipTelemetry> telemetry;
  telemetry.reserve(layers.size());
  for (const NamedLayer& named : layers) telemetry.push_back(named.layer->clip_telemetry());
  if (group != nullptr && !layers.empty()) telemetry = over_processes(telemetry, *group);
  std::vector<record::LayerClips> records;
  for (size_t i = 0; i < layers.size(); ++i) {
    const ClipTelemetry& one = telemetry[i];
    records.push_back({layers[i].path, one.r_clipped_above, one.r_clipped_below, one.d_clipped,
                       record_of(one.r), record_of(one.d)});
  }
  return records;
}

}  // namespace renorm::train
