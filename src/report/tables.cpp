#include "report/tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "report/format.h"

namespace renorm::report {
namespace {

using record::Arm;
using record::ArmRun;
using record::Measure;
using record::Results;

constexpr size_t kMaxOthers = 20;  // columns

// Columns without any value are left out.
struct Columns {
  bool train = false;
  bool batch_statistics = false;
  bool steps = false;
  std::vector<std::string> others{};  // names of further measures

  size_t count() const {
    return 2 + (train ? 1 : 0) + (batch_statistics ? 1 : 0) + (steps ? 1 : 0) + others.size();
  }
};

std::vector<std::string> other_names(const std::vector<Arm>& arms) {
  std::vector<std::string> names;
  for (const Arm& arm : arms) {
    for (const record::NamedMeasure& other : arm.others) {
      const bool known = std::find(names.begin(), names.end(), other.name) != names.end();
      if (!known && names.size() < kMaxOthers) names.push_back(other.name);
    }
  }
  return names;
}

Columns columns_of(const std::vector<Arm>& arms) {
  const auto any = [&](const auto& has) { return std::any_of(arms.begin(), arms.end(), has); };
  Columns columns;
  columns.train = any([](const Arm& arm) { return arm.train_accuracy || arm.paper.train_accuracy; });
  columns.batch_statistics = any(
      [](const Arm& arm) { return arm.batch_statistics_accuracy || arm.paper.batch_statistics_accuracy; });
  columns.steps = any([](const Arm& arm) { return !arm.steps_to_reference.values.empty(); });
  columns.others = other_names(arms);
  return columns;
}

// All texts are safe.
std::string cell(const std::string& label, const std::string& ours, const std::string& below) {
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

// Seeds that never reached it are not in the measure.
std::string steps_cell(const Arm& arm) {
  const size_t reached = arm.steps_to_reference.values.size();
  const size_t finished = finished_runs(arm);
  std::string below;
  if (reached > 0 && reached < finished) below = fmt::format("{} of {} seeds", reached, finished);
  const bool never = reached == 0 && finished > 0 && finished == arm.runs.size();
  return cell("steps to reference", never ? "not reached" : steps(arm.steps_to_reference), below);
}

std::string others_cell(const Arm& arm, const std::string& name) {
  const auto found = std::find_if(arm.others.begin(), arm.others.end(),
                                  [&](const record::NamedMeasure& other) { return other.name == name; });
  return cell(escaped(name), found == arm.others.end() ? kNothing : percent(found->measure), "");
}

// `sample` is a piece of the arm's line, if it has one.
std::string name_cell(const Arm& arm, const std::string& sample) {
  std::string text = fmt::format(R"(<th scope="row">{}<span class="label">{}</span><code>{}</code>)", sample,
                                 label_of(arm), escaped(arm.name));
  const size_t finished = finished_runs(arm);
  if (finished < arm.runs.size() || arm.runs.empty()) {
    text += arm.runs.empty() ? R"(<span class="tag">not started</span>)"
                             : fmt::format(R"(<span class="tag">{} of {} finished</span>)", finished,
                                           counted(arm.runs.size(), "run"));
  }
  return text + "</th>";
}

std::string arm_row(const Page& page, const FigureArms& entry, size_t index, const Columns& columns) {
  const Arm& arm = page.results.arms[index];
  std::string text = "<tr>" + name_cell(arm, entry.figure.y ? "" : swatch(page.looks[index]));
  text += cell(page.measure, percent(arm.test_accuracy), paper_line(arm.paper.test_accuracy, arm.paper.note));
  if (columns.train) {
    text += cell("training accuracy", measured(arm.train_accuracy), paper_line(arm.paper.train_accuracy));
  }
  if (columns.batch_statistics) text += batch_statistics_cell(arm);
  for (const std::string& name : columns.others) text += others_cell(arm, name);
  if (columns.steps) text += steps_cell(arm);
  return text + "</tr>\n";
}

std::string table_head(const Page& page, const Columns& columns) {
  const auto column = [](const std::string& name) { return fmt::format(R"(<th scope="col">{}</th>)", name); };
  std::string text = "<thead><tr>" + column("arm") + column(page.measure + ",&nbsp;%");
  if (columns.train) text += column("training accuracy,&nbsp;%");
  if (columns.batch_statistics) text += column("with batch statistics,&nbsp;%");
  for (const std::string& name : columns.others) text += column(escaped(name));
  if (columns.steps) text += column("steps to reference");
  return text + "</tr></thead>\n";
}

std::string explanation(const Page& page, const Columns& columns) {
  std::string text;
  if (page.results.seeds.size() > 1) text += "Mean ± standard deviation over the seeds. ";
  if (columns.batch_statistics) {
    text +=
        "With batch statistics: evaluated with the statistics of each minibatch instead of the moving "
        "averages. ";
  }
  const std::set<std::string> references = references_of(page);
  if (columns.steps && !references.empty()) {
    text +=
        fmt::format("Steps to reference: until the arm has the final {} of {}{}. ", page.measure,
                    references.size() == 1 ? "" : "its figure's reference: ", fmt::join(references, ", "));
  }
  if (page.paper) {
    text += "The paper's figures are on ImageNet: compare the differences between arms, not the numbers.";
  }
  return text.empty() ? "" : fmt::format("<p class=\"small\">{}</p>\n", text);
}

std::string command_box(const std::string& command) {
  return fmt::format("<pre><code>{}</code></pre>\n", escaped(command));
}

std::string fact(const std::string& name, const std::string& value) {
  return value.empty() ? "" : fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, value);
}

std::string code(const std::string& text) {
  return text.empty() ? "" : fmt::format("<code>{}</code>", escaped(text));
}

std::string seeds_of(const Results& results) {
  std::string text;
  for (const uint64_t seed : results.seeds) text += (text.empty() ? "" : ", ") + std::to_string(seed);
  return text;
}

std::string facts(const Results& results) {
  std::string text = "<dl>\n" + fact("experiment", escaped(results.name)) + fact("data", code(results.data)) +
                     fact("model", code(results.model));
  if (results.steps > 0) text += fact("steps", grouped(results.steps));
  if (results.test_images > 0) text += fact("test images", grouped(results.test_images));
  text += fact(results.seeds.size() == 1 ? "seed" : "seeds", seeds_of(results));
  for (const auto& [name, version] : results.versions) text += fact(escaped(name), escaped(version));
  return text + "</dl>\n";
}

std::string arm_commands(const std::vector<Arm>& arms) {
  std::string text;
  for (const Arm& arm : arms) {
    if (!arm.command.empty()) {
      text += fmt::format("<p><code>{}</code></p>\n", escaped(arm.name)) + command_box(arm.command);
    }
  }
  if (text.empty()) return "";
  return fmt::format("<details>\n<summary>The command of each arm</summary>\n{}</details>\n", text);
}

// Each finished run has one value, in the order of the runs.
std::string value_of(const Arm& arm, size_t index) {
  const auto first = arm.runs.begin();
  const auto is_finished = [](const ArmRun& run) { return run.finished; };
  const auto& values = arm.test_accuracy.values;
  const bool known = arm.runs[index].finished &&
                     values.size() == static_cast<size_t>(std::count_if(first, arm.runs.end(), is_finished));
  if (!known) return kNothing;
  const auto place = std::count_if(first, first + static_cast<std::ptrdiff_t>(index), is_finished);
  return percent(values[static_cast<size_t>(place)]);
}

std::string run_row(const Page& page, const Arm& arm, size_t index) {
  const ArmRun& run = arm.runs[index];
  return fmt::format(R"(<tr><td data-label="arm"><code>{}</code></td><td data-label="seed">{}</td>)"
                     R"(<td data-label="steps">{} of {}</td><td data-label="{}, %">{}</td>)"
                     R"(<td data-label="time">{}</td><td data-label="folder"><code>{}</code></td></tr>)"
                     "\n",
                     escaped(arm.name), run.seed, grouped(run.steps_done), grouped(arm.steps), page.measure,
                     value_of(arm, index), duration(run.seconds), escaped(run.folder));
}

std::string run_table(const Page& page) {
  std::string rows;
  for (const Arm& arm : page.results.arms) {
    for (size_t i = 0; i < arm.runs.size(); ++i) rows += run_row(page, arm, i);
  }
  if (rows.empty()) return "";
  return fmt::format(
      "<details>\n<summary>Every run</summary>\n<div class=\"scroll\"><table class=\"runs\">\n"
      "<thead><tr><th>arm</th><th>seed</th><th>steps</th><th>{}, %</th><th>time</th><th>folder</th></tr>"
      "</thead>\n<tbody>\n{}</tbody></table></div>\n</details>\n",
      page.measure, rows);
}

}  // namespace

std::string table_section(const Page& page) {
  if (page.results.arms.empty()) return "";
  const Columns columns = columns_of(page.results.arms);
  std::string text =
      "<section id=\"table\">\n<h2>Results</h2>\n<div class=\"scroll\"><table class=\"arms\">\n" +
      table_head(page, columns);
  for (const FigureArms& entry : page.figures) {
    if (entry.arms.empty()) continue;
    text += "<tbody>";
    if (page.figures.size() > 1) {
      text += fmt::format(R"(<tr class="group"><th scope="rowgroup" colspan="{}">{}</th></tr>)",
                          columns.count(), escaped(entry.figure.title));
    }
    text += "\n";
    for (const size_t index : entry.arms) text += arm_row(page, entry, index, columns);
    text += "</tbody>\n";
  }
  return text + "</table></div>\n" + explanation(page, columns) + "</section>\n";
}

std::string data_section(const ReportExtras& extras) {
  if (extras.contact_sheet_png.empty()) return "";
  const std::string caption = escaped(extras.contact_sheet_caption);
  std::string text = fmt::format(
      "<section id=\"data\">\n<h2>Data</h2>\n<figure>\n"
      R"(<img class="sheet" alt="{}" src="data:image/png;base64,{}">)"
      "\n",
      caption.empty() ? "Examples of the data" : caption, base64(extras.contact_sheet_png));
  if (!caption.empty()) text += fmt::format("<figcaption>{}</figcaption>\n", caption);
  return text + "</figure>\n</section>\n";
}

std::string origin_section(const Page& page) {
  const Results& results = page.results;
  std::string text = "<section id=\"origin\">\n<h2>How this was made</h2>\n";
  if (!results.command.empty()) text += command_box(results.command);
  return text + facts(results) + arm_commands(results.arms) + run_table(page) + "</section>\n";
}

}  // namespace renorm::report
