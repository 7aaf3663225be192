#include "cli/results_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "cli/wrapped.h"

namespace renorm::cli {
namespace {

constexpr size_t kVerdictWidth = 15;

std::string percent(const record::Measure& measure) {
  if (measure.values.empty()) return "-";
  if (measure.values.size() == 1) return fmt::format("{:.1f}", measure.mean);
  return fmt::format("{:.1f} +- {:.1f}", measure.mean, measure.spread);
}

std::string percent(const std::optional<record::Measure>& measure) {
  return measure ? percent(*measure) : "";
}

std::string percent(const std::optional<double>& figure) {
  return figure ? fmt::format("{:.1f}", *figure) : "";
}

std::string steps(const record::Arm& arm, bool has_reference) {
  if (!has_reference) return "-";
  const size_t reached = arm.steps_to_reference.values.size(), finished = arm.test_accuracy.values.size();
  if (finished == 0) return "-";
  if (reached == 0) return "never";
  const std::string mean = fmt::format("{}", std::llround(arm.steps_to_reference.mean));
  return reached < finished ? fmt::format("{} ({} of {})", mean, reached, finished) : mean;
}

// The paper's figures in the order of ours: test, training set, batch statistics.
std::string paper(const record::PaperFigures& figures) {
  std::string text = percent(figures.test_accuracy);
  if (figures.train_accuracy) text += fmt::format(" / {}", percent(figures.train_accuracy));
  if (figures.batch_statistics_accuracy) {
    text += fmt::format(" / {}", percent(figures.batch_statistics_accuracy));
  }
  return text;
}

using Row = std::vector<std::string>;

// The first column is flush left, the others flush right.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string results_table(const record::Results& results) {
  std::vector<Row> rows = {
      {"arm", "test %", "training set %", "batch statistics %", "steps to reference", "paper %"}};
  const bool has_reference =
      std::any_of(results.arms.begin(), results.arms.end(), [&](const record::Arm& arm) {
        return arm.name == results.reference && !arm.test_accuracy.values.empty();
      });
  for (const record::Arm& arm : results.arms) {
    rows.push_back({printable(arm.name), percent(arm.test_accuracy), percent(arm.train_accuracy),
                    percent(arm.batch_statistics_accuracy), steps(arm, has_reference), paper(arm.paper)});
  }
  return aligned(rows);
}

std::string claims_text(const record::Results& results, int columns) {
  const auto width = static_cast<size_t>(columns);
  const std::string blanks(kVerdictWidth, ' ');
  std::string text;
  for (const bool in_paper : {true, false}) {
    bool first = true;
    for (const record::Claim& claim : results.claims) {
      if (claim.in_paper != in_paper) continue;
      if (first)
        text += in_paper ? "claims of the paper\n" : "\nthe same with a stronger bias, not in the paper\n";
      first = false;
      text += fmt::format("{:<{}}{}\n{}{}\n", claim.verdict, kVerdictWidth,
                          wrapped(claim.text, kVerdictWidth, kVerdictWidth, width), blanks,
                          wrapped(claim.evidence, kVerdictWidth, kVerdictWidth, width));
    }
  }
  return results.test.empty() ? text : text + "\n" + wrapped(results.test, 0, 0, width) + "\n";
}

}  // namespace renorm::cli
