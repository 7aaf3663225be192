#include "base/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace renorm {
namespace {

// Levenshtein distance, one row of the table at a time.
size_t edits_between(const std::string& from, const std::string& to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replace = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

size_t difference(size_t a, size_t b) { return a > b ? a - b : b - a; }

}  // namespace

std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t fewest = word.size() / 2 + 1;
  for (const std::string& candidate : candidates) {
    // Each edit changes the length by one at most; this also keeps a word of a megabyte from costing
    // anything.
    if (difference(word.size(), candidate.size()) >= fewest) continue;
    const size_t edits = edits_between(word, candidate);
    if (edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string name_hint(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_name(word, candidates);
  if (!nearest.empty()) return fmt::format("; did you mean '{}'?", nearest);
  if (candidates.empty()) return "";
  if (candidates.size() == 1) return fmt::format("; there is only {}", candidates.front());
  return fmt::format("; there are {}", fmt::join(candidates, ", "));
}

}  // namespace renorm
