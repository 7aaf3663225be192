#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "report/encode.h"
#include "report/numbers.h"
#include "report/sections.h"

namespace renorm::report {
namespace {

using record::Arm;
using record::Measure;

// Columns that no arm has anything for are left out.
struct Columns {
  bool train = false;
  bool batch_statistics = false;
  bool steps = false;

  int count() const { return 2 + (train ? 1 : 0) + (batch_statistics ? 1 : 0) + (steps ? 1 : 0); }
};

Columns columns_of(const std::vector<Arm>& arms) {
  const auto any = [&](const auto& has) { return std::any_of(arms.begin(), arms.end(), has); };
  Columns columns;
  columns.train = any([](const Arm& arm) { return arm.train_accuracy || arm.paper.train_accuracy; });
  columns.batch_statistics = any(
      [](const Arm& arm) { return arm.batch_statistics_accuracy || arm.paper.batch_statistics_accuracy; });
  columns.steps = any([](const Arm& arm) { return !arm.steps_to_reference.values.empty(); });
  return columns;
}

std::string cell(const char* label, const std::string& ours, const std::string& below) {
  const bool empty = ours == kNothing && below.empty();
  std::string text = fmt::format(R"(<td data-label="{}"{}><span class="ours">{}</span>)", label,
                                 empty ? R"( class="none")" : "", ours);
  if (!below.empty()) text += fmt::format(R"(<span class="paper">{}</span>)", below);
  return text + "</td>";
}

std::string paper_line(const std::optional<double>& figure, const std::string& note = "") {
  if (!figure) return "";
  return fmt::format("paper {}{}{}", percent(*figure), note.empty() ? "" : ", ", escaped(note));
}

std::string measured(const std::optional<Measure>& measure) { return measure ? percent(*measure) : kNothing; }

std::string batch_statistics_cell(const Arm& arm) {
  std::string below = paper_line(arm.paper.batch_statistics_accuracy);
  if (arm.batch_statistics_accuracy && !arm.batch_statistics_sampler.empty()) {
    below += fmt::format("{}on {}", below.empty() ? "" : "<br>", escaped(arm.batch_statistics_sampler));
  }
  return cell("with batch statistics", measured(arm.batch_statistics_accuracy), below);
}

size_t finished_runs(const Arm& arm) {
  return static_cast<size_t>(
      std::count_if(arm.runs.begin(), arm.runs.end(), [](const auto& run) { return run.finished; }));
}

// Seeds that never got so far are not in the measure.
std::string steps_cell(const Arm& arm) {
  const size_t reached = arm.steps_to_reference.values.size();
  const size_t finished = finished_runs(arm);
  std::string below;
  if (reached > 0 && reached < finished) below = fmt::format("{} of {} seeds", reached, finished);
  const bool never = reached == 0 && finished > 0 && finished == arm.runs.size();
  return cell("steps to reference", never ? "not reached" : steps(arm.steps_to_reference), below);
}

std::string name_cell(const Arm& arm, const Look& look) {
  std::string text = fmt::format(R"(<th scope="row">{}<span class="label">{}</span><code>{}</code>)",
                                 swatch(look), label_of(arm), escaped(arm.name));
  const size_t finished = finished_runs(arm);
  if (finished < arm.runs.size() || arm.runs.empty()) {
    text += arm.runs.empty() ? R"(<span class="tag">not started</span>)"
                             : fmt::format(R"(<span class="tag">{} of {} finished</span>)", finished,
                                           counted(arm.runs.size(), "run"));
  }
  return text + "</th>";
}

std::string row(const Page& page, size_t index, const Columns& columns) {
  const Arm& arm = page.results.arms[index];
  std::string text = "<tr>" + name_cell(arm, page.looks[index]);
  text +=
      cell("test accuracy", percent(arm.test_accuracy), paper_line(arm.paper.test_accuracy, arm.paper.note));
  if (columns.train) {
    text += cell("training accuracy", measured(arm.train_accuracy), paper_line(arm.paper.train_accuracy));
  }
  if (columns.batch_statistics) text += batch_statistics_cell(arm);
  if (columns.steps) text += steps_cell(arm);
  return text + "</tr>\n";
}

std::string head(const Columns& columns) {
  std::string text = R"(<thead><tr><th scope="col">arm</th><th scope="col">test accuracy,&nbsp;%</th>)";
  if (columns.train) text += R"(<th scope="col">training accuracy,&nbsp;%</th>)";
  if (columns.batch_statistics) text += R"(<th scope="col">with batch statistics,&nbsp;%</th>)";
  if (columns.steps) text += R"(<th scope="col">steps to reference</th>)";
  return text + "</tr></thead>\n";
}

std::string explanation(const Page& page, const Columns& columns) {
  std::string text;
  if (page.results.seeds.size() > 1) text += "Mean ± standard deviation over the seeds. ";
  if (columns.batch_statistics) {
    text +=
        "With batch statistics: evaluated with the statistics of each minibatch in place of the moving "
        "ones. ";
  }
  const size_t reference = reference_arm(page.results);
  if (columns.steps && reference < page.results.arms.size()) {
    text += fmt::format("Steps to reference: until the arm has the final accuracy of {}. ",
                        label_of(page.results.arms[reference]));
  }
  if (page.paper) {
    text += "The paper's figures are of ImageNet: compare how arms stand to each other, not the numbers.";
  }
  return text.empty() ? "" : fmt::format("<p class=\"small\">{}</p>\n", text);
}

}  // namespace

std::string table_section(const Page& page) {
  if (page.results.arms.empty()) return "";
  const Columns columns = columns_of(page.results.arms);
  std::string text =
      "<section id=\"table\">\n<h2>Results</h2>\n<div class=\"scroll\"><table class=\"arms\">\n" +
      head(columns);
  for (const FigureArms& entry : page.figures) {
    if (entry.arms.empty()) continue;
    text += "<tbody>";
    if (page.figures.size() > 1) {
      text += fmt::format(R"(<tr class="group"><th scope="rowgroup" colspan="{}">{}</th></tr>)",
                          columns.count(), escaped(entry.figure.title));
    }
    text += "\n";
    for (const size_t index : entry.arms) text += row(page, index, columns);
    text += "</tbody>\n";
  }
  return text + "</table></div>\n" + explanation(page, columns) + "</section>\n";
}

}  // namespace renorm::report
