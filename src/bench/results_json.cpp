#include "bench/results_json.h"

#include <nlohmann/json.hpp>

#include "bench/onednn.h"

namespace renorm::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

Json means(const Results& results, Which which) {
  Json json = Json::object();
  for (const Layout layout : kLayouts) {
    for (const Pass pass : kPasses) {
      for (const Ratio& ratio : ratios()) {
        const auto mean = mean_of(results, layout, pass, ratio, which);
        if (mean) json[name_of(layout)][name_of(pass)][ratio.key] = mean->geometric;
      }
    }
  }
  return json;
}

Json targets_json(const Results& results) {
  Json list = Json::array();
  for (const Reached& entry : reached(results)) {
    list.push_back({{"layout", name_of(entry.target.layout)},
                    {"pass", name_of(entry.target.pass)},
                    {"ratio", entry.target.key},
                    {"shapes", entry.target.which == Which::kLarge ? "large" : "all"},
                    {entry.target.at_least ? "at_least" : "at_most", entry.target.bound},
                    {"reached", entry.mean.geometric},
                    {"least", entry.mean.least},
                    {"greatest", entry.mean.greatest},
                    {"met", entry.met}});
  }
  return list;
}

Json figure_json(const Figure& figure) {
  return {{"best_ms", figure.best * 1e3},
          {"median_ms", figure.median * 1e3},
          {"quartile_distance_ms", figure.spread * 1e3},
          {"samples", figure.samples},
          {"calls_a_sample", figure.calls}};
}

Json cases_json(const Results& results) {
  Json list = Json::array();
  for (const CaseResult& result : results.cases) {
    Json entry = {{"shape", result.shape_and_layout.sizes},
                  {"layout", name_of(result.shape_and_layout.layout)},
                  {"megabytes", result.shape_and_layout.megabytes()}};
    for (const auto& [pass, figures] : result.passes) {
      for (const auto& [name, figure] : figures) entry[name_of(pass)][name] = figure_json(figure);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace

std::string to_json(const Results& results) {
  const Machine& machine = results.machine;
  Json json;
  json["format"] = kFormat;
  json["renorm"] = RENORM_VERSION;
  json["machine"] = {{"cpu", machine.cpu},
                     {"cpus", machine.cpus},
                     {"simd_target", machine.simd_target},
                     {"libtorch", machine.libtorch},
                     {"onednn", machine.onednn},
                     {"onednn_blocked_format", onednn_blocked_format()}};
  json["threads"] = results.threads;
  json["quick"] = results.quick;
  json["fresh_memory"] = results.fresh_memory;
  json["clock"] = results.threads == 1 ? "CPU time of the process" : "wall time";
  json["figure"] = "best of all samples; peer time / our time unless the key says otherwise";
  json["geomean"] = means(results, Which::kAll);
  json["large"] = means(results, Which::kLarge);
  json["targets"] = targets_json(results);
  json["cases"] = cases_json(results);
  return json.dump(2) + "\n";
}

}  // namespace renorm::bench
