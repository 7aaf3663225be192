#include "bench/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "bench/competitors.h"

namespace renorm::bench {
namespace {

using Text = std::back_insert_iterator<std::string>;

struct Column {
  const char* title;
  const char* key;
  int width;
};

constexpr Column kColumns[] = {
    {"into", "copy_multiple", 6},     {"shipped", "copy_multiple_shipped", 9},
    {"native", "native", 10},         {"+ReLU", "native_relu", 8},
    {"oneDNN", "onednn", 8},          {"blocked", "onednn_blocked", 8},
    {"tensor ops", "tensor_ops", 11},
};

std::string number(std::optional<double> value) {
  if (!value) return "-";
  return *value >= 99.95 ? fmt::format("{:.1f}", *value) : fmt::format("{:.2f}", *value);
}

void write_head(Text out, const Results& results, Layout layout, Pass pass) {
  fmt::format_to(out, "\n{} {}, {} thread{}\n", name_of(layout), name_of(pass), results.threads,
                 results.threads == 1 ? "" : "s");
  fmt::format_to(out, "{:<15}{:>6}{:>9}{:>9}{:>15}{:>13}\n", "", "", "copy", "ours", "x copy", "peer / ours");
  fmt::format_to(out, "{:<15}{:>6}{:>9}{:>9}", "shape", "MB", "ms", "ms");
  for (const Column& column : kColumns) fmt::format_to(out, "{:>{}}", column.title, column.width);
  fmt::format_to(out, "\n");
}

void write_row(Text out, const CaseResult& result, Pass pass) {
  const Figures& figures = result.passes.at(pass);
  fmt::format_to(out, "{:<15}{:>6.1f}{:>9.3f}{:>9.3f}", result.shape_and_layout.shape_name(),
                 result.shape_and_layout.megabytes(), figures.at(kCopy).best * 1e3,
                 figures.at(kOurs).best * 1e3);
  for (const Column& column : kColumns) {
    fmt::format_to(out, "{:>{}}", number(value_of(result, pass, ratio_named(column.key))), column.width);
  }
  fmt::format_to(out, "\n");
}

void write_means(Text out, const Results& results, Layout layout, Pass pass) {
  fmt::format_to(out, "{:<39}", "geometric mean");
  for (const Column& column : kColumns) {
    const auto mean = mean_of(results, layout, pass, ratio_named(column.key), Which::kAll);
    fmt::format_to(out, "{:>{}}", number(mean ? std::optional<double>(mean->geometric) : std::nullopt),
                   column.width);
  }
  fmt::format_to(out, "\n");
}

void write_table(Text out, const Results& results, Layout layout, Pass pass) {
  const auto here = [&](const CaseResult& result) { return result.shape_and_layout.layout == layout; };
  const auto rows = std::count_if(results.cases.begin(), results.cases.end(), here);
  if (rows == 0) return;
  write_head(out, results, layout, pass);
  for (const CaseResult& result : results.cases) {
    if (here(result)) write_row(out, result, pass);
  }
  if (rows > 1) write_means(out, results, layout, pass);
}

void write_targets(Text out, const Results& results) {
  const std::vector<Reached> list = reached(results);
  if (list.empty()) return;
  const auto met = std::count_if(list.begin(), list.end(), [](const Reached& entry) { return entry.met; });
  fmt::format_to(out, "\nAsked and reached (geometric means): {} of {} met\n", met, list.size());
  fmt::format_to(out, "{:<17}{:<34}{:>9}{:>10}{:>16}\n", "", "", "asked", "reached", "least to most");
  for (const Reached& entry : list) {
    fmt::format_to(out, "{:<17}{:<34}{:>9}{:>10}{:>16}{}\n",
                   fmt::format("{} {}", name_of(entry.target.layout), name_of(entry.target.pass)),
                   entry.target.text,
                   fmt::format("{} {}", entry.target.at_least ? ">=" : "<=", number(entry.target.bound)),
                   number(entry.mean.geometric),
                   fmt::format("{} - {}", number(entry.mean.least), number(entry.mean.greatest)),
                   entry.met ? "" : "  MISSED");
  }
}

void write_notes(Text out, const Results& results) {
  const char* clock = results.threads == 1 ? "CPU time of the process" : "wall time";
  fmt::format_to(
      out,
      "\nBest of all samples, {}; all competitors take turns in one run.\n"
      "x copy: our time / time of a non-temporal copy; `into` preallocated memory, or as `shipped`\n"
      "with allocation. peer / ours: above 1 we are faster. native and tensor ops allocate and are\n"
      "compared with ours as shipped, +ReLU with our fused ReLU; oneDNN writes into preallocated\n"
      "memory and is compared with ours doing the same. Large: from 8 MB. {}\n",
      clock,
      results.fresh_memory
          ? "Freed memory goes back to\nthe system, so those who allocate pay for page faults."
          : "Freed memory is kept for\nthe next call, for all alike (--fresh-memory changes that).");
  if (results.machine.onednn.empty()) {
    fmt::format_to(out, "This program was built without oneDNN, so its columns are empty.\n");
  }
}

}  // namespace

std::string to_table(const Results& results) {
  const Machine& machine = results.machine;
  std::string text = fmt::format("{}, {} CPUs, SIMD target {}, LibTorch {}{}\n", machine.cpu, machine.cpus,
                                 machine.simd_target, machine.libtorch,
                                 machine.onednn.empty() ? "" : ", oneDNN " + machine.onednn);
  const Text out = std::back_inserter(text);
  for (const Layout layout : kLayouts) {
    for (const Pass pass : kPasses) write_table(out, results, layout, pass);
  }
  write_targets(out, results);
  write_notes(out, results);
  return text;
}

}  // namespace renorm::bench
