#include "bench/results.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/table.h"
#include "bench/competitors.h"
#include "bench/onednn.h"
#include "kernels/kernels.h"

namespace renorm::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

const char* clock_of(const Results& results) {
  return results.threads == 1 ? "CPU time of the process" : "wall time";
}

const char* malloc_of(const Results& results) {
  return results.fresh_memory ? "glibc's defaults: freed blocks above 32 MB go back to the system"
                              : "freed memory is kept (M_MMAP_MAX 0, no trimming)";
}

// Best time of `numerator` / best time of `denominator`. Peer / ours: above 1 we are faster.
struct Ratio {
  const char* key;  // in the JSON
  const char* numerator;
  const char* denominator;
};

// Peers that allocate are compared with ours as shipped, oneDNN with ours into preallocated memory.
constexpr Ratio kRatios[] = {
    {"native", kNative, kOurs},
    {"native_relu", kNativeRelu, kOursRelu},
    {"native_add_relu", kNativeAddRelu, kOursAddRelu},
    {"add_relu_separately", kOursSeparately, kOursAddRelu},
    {"onednn", kOneDnn, kOursInto},
    {"onednn_blocked", kOneDnnBlocked, kOursInto},
    {"onednn_vs_shipped", kOneDnn, kOurs},
    {"onednn_blocked_vs_shipped", kOneDnnBlocked, kOurs},
    {"tensor_ops", kTensorOps, kOurs},
    {"native_bf16", kNativeBf16, kOursBf16},
    {"copy_multiple", kOursInto, kCopy},
    {"copy_multiple_shipped", kOurs, kCopy},
    {"copy_multiple_relu", kOursIntoRelu, kCopy},
    {"groups_of_4", kOursGroups, kOurs},
    {"thread_gain", kOursIntoOneThread, kOursInto},
    {"thread_gain_shipped", kOursOneThread, kOurs},
};

const Ratio& ratio_named(const std::string& key) {
  for (const Ratio& ratio : kRatios) {
    if (key == ratio.key) return ratio;
  }
  throw std::logic_error("unknown ratio " + key);
}

// A statistic of a figure: &Figure::best or &Figure::median.
using Statistic = double Figure::*;

// Empty if one of the two was not measured.
std::optional<double> value_of(const CaseResult& result, Pass pass, const Ratio& ratio,
                               Statistic statistic = &Figure::best) {
  const Figures& figures = result.passes.at(pass);
  const auto numerator = figures.find(ratio.numerator);
  const auto denominator = figures.find(ratio.denominator);
  if (numerator == figures.end() || denominator == figures.end()) return std::nullopt;
  return numerator->second.*statistic / denominator->second.*statistic;
}

enum class Which { kAll, kLarge };

// The geometric mean over the cases of a layout; empty if there is no figure.
std::optional<double> mean_of(const Results& results, Layout layout, Pass pass, const Ratio& ratio,
                              Which which, Statistic statistic = &Figure::best) {
  double log_sum = 0.0;
  int count = 0;
  for (const CaseResult& result : results.cases) {
    if (result.shape_and_layout.layout != layout) continue;
    if (which == Which::kLarge && !result.shape_and_layout.large()) continue;
    const std::optional<double> value = value_of(result, pass, ratio, statistic);
    if (!value) continue;
    log_sum += std::log(*value);
    ++count;
  }
  if (count == 0) return std::nullopt;
  return std::exp(log_sum / count);
}

struct Column {
  const char* titles[2];
  const char* key;
};

constexpr Column kColumns[] = {
    {{"ours", "x copy"}, "copy_multiple"}, {{"native", "/ ours"}, "native"},
    {{"+ReLU", "/ ours"}, "native_relu"},  {{"+add", "+ReLU"}, "native_add_relu"},
    {{"oneDNN", "/ ours"}, "onednn"},      {{"blocked", "/ ours"}, "onednn_blocked"},
    {{"tensor", "ops"}, "tensor_ops"},
};

std::string number(std::optional<double> value) {
  if (!value) return "-";
  return *value >= 99.95 ? fmt::format("{:.1f}", *value) : fmt::format("{:.2f}", *value);
}

using Row = std::vector<std::string>;

Row row_of(const CaseResult& result, Pass pass) {
  const Figures& figures = result.passes.at(pass);
  Row row = {result.shape_and_layout.shape_name(), fmt::format("{:.1f}", result.shape_and_layout.megabytes()),
             fmt::format("{:.3f}", figures.at(kCopy).best * 1e3),
             fmt::format("{:.3f}", figures.at(kOurs).best * 1e3),
             fmt::format("{:.3f}", figures.at(kOurs).median * 1e3)};
  for (const Column& column : kColumns)
    row.push_back(number(value_of(result, pass, ratio_named(column.key))));
  return row;
}

std::string table_of(const Results& results, Layout layout, Pass pass) {
  std::vector<Row> rows = {{"", "", "copy", "ours", "ours"}, {"shape", "MB", "ms", "ms", "median"}};
  for (const Column& column : kColumns) {
    for (size_t line : {0, 1}) rows[line].emplace_back(column.titles[line]);
  }
  const size_t head = rows.size();
  for (const CaseResult& result : results.cases) {
    if (result.shape_and_layout.layout == layout) rows.push_back(row_of(result, pass));
  }
  if (rows.size() == head) return "";
  if (rows.size() > head + 1) {
    rows.push_back({"geometric mean", "", "", "", ""});
    for (const Column& column : kColumns) {
      rows.back().push_back(number(mean_of(results, layout, pass, ratio_named(column.key), Which::kAll)));
    }
  }
  return fmt::format("\n{} {}, {} thread{}\n{}", name_of(layout), name_of(pass), results.threads,
                     results.threads == 1 ? "" : "s", aligned_table(rows));
}

std::string notes(const Results& results) {
  std::string text = fmt::format(
      "\nBest of all samples, {}; all competitors take turns in one run.\n"
      "x copy: our time into preallocated memory / time of a non-temporal copy. / ours: above 1 we\n"
      "are faster. native and tensor ops allocate and are compared with ours as shipped, +ReLU with\n"
      "our fused ReLU, +add +ReLU (the end of a residual block) with our fused addition and ReLU;\n"
      "oneDNN writes into preallocated memory and is compared with ours doing the same.\n{}\n",
      clock_of(results),
      results.fresh_memory ? "Freed memory goes back to the system, so allocation includes page faults."
                           : "Freed memory is kept for the next call of every competitor "
                             "(--fresh-memory changes that).");
  if (results.machine.onednn.empty()) {
    text += "This program was built without oneDNN, so its columns are empty.\n";
  }
  return text;
}

Json means(const Results& results, Which which, Statistic statistic = &Figure::best) {
  Json json = Json::object();
  for (const Layout layout : kLayouts) {
    for (const Pass pass : kPasses) {
      for (const Ratio& ratio : kRatios) {
        const auto mean = mean_of(results, layout, pass, ratio, which, statistic);
        if (mean) json[name_of(layout)][name_of(pass)][ratio.key] = *mean;
      }
    }
  }
  return json;
}

Json figure_json(const Figure& figure) {
  return {{"best_ms", figure.best * 1e3},
          {"median_ms", figure.median * 1e3},
          {"quartile_distance_ms", figure.spread * 1e3},
          {"samples", figure.samples},
          {"calls_per_sample", figure.calls}};
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

Machine this_machine() {
  return {cpu_model(), static_cast<int>(std::thread::hardware_concurrency()), kernels::simd_target(),
          TORCH_VERSION, onednn_version()};
}

std::string to_table(const Results& results) {
  const Machine& machine = results.machine;
  std::string text =
      fmt::format("{}, {} CPUs, SIMD target {}, LibTorch {}{}\nmalloc: {}\n", machine.cpu, machine.cpus,
                  machine.simd_target, machine.libtorch,
                  machine.onednn.empty() ? "" : ", oneDNN " + machine.onednn, malloc_of(results));
  for (const Layout layout : kLayouts) {
    for (const Pass pass : kPasses) text += table_of(results, layout, pass);
  }
  return text + notes(results);
}

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
  json["malloc"] = malloc_of(results);
  json["clock"] = clock_of(results);
  json["figure"] = "best of all samples; peer time / our time unless the key names another ratio";
  json["geomean"] = means(results, Which::kAll);
  json["geomean_of_medians"] = means(results, Which::kAll, &Figure::median);
  json["large"] = means(results, Which::kLarge);
  json["cases"] = cases_json(results);
  return json.dump(2) + "\n";
}

}  // namespace renorm::bench
