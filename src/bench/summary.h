// From raw figures to ratios, geometric means and what was asked for.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/cases.h"
#include "bench/machine.h"
#include "bench/timing.h"

namespace renorm::bench {

struct CaseResult {
  Case shape_and_layout;
  std::map<Pass, Figures> passes;
};

struct Results {
  Machine machine;
  int threads;
  bool quick;
  bool fresh_memory;  // allocation takes pages from the system each time
  std::vector<CaseResult> cases;
};

// Best time of `numerator` / best time of `denominator`. Peer / ours: above 1 we are faster.
struct Ratio {
  const char* key;  // in the JSON
  const char* numerator;
  const char* denominator;
};
const std::vector<Ratio>& ratios();
const Ratio& ratio_named(const std::string& key);

// Empty where one of the two was not measured.
std::optional<double> value_of(const CaseResult& result, Pass pass, const Ratio& ratio);

enum class Which { kAll, kLarge };
struct Mean {
  double geometric;
  double least;
  double greatest;
};
// Over the cases of a layout; empty if there is no figure.
std::optional<Mean> mean_of(const Results& results, Layout layout, Pass pass, const Ratio& ratio,
                            Which which);

// What the project asks of itself.
struct Target {
  Layout layout;
  Pass pass;
  const char* key;
  double bound;
  bool at_least;  // else at most
  Which which;
  const char* text;  // for people
};
// Those that apply to a run with this many threads.
std::vector<Target> targets(int threads);

struct Reached {
  Target target;
  Mean mean;
  bool met;
};
// Targets for which the run has figures.
std::vector<Reached> reached(const Results& results);

}  // namespace renorm::bench
