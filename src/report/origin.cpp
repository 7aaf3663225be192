#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/text.h"
#include "report/encode.h"
#include "report/numbers.h"
#include "report/sections.h"

namespace renorm::report {
namespace {

using record::Arm;
using record::ArmRun;
using record::Results;

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

// Runs that are finished have a value each, in their order.
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

std::string run_row(const Arm& arm, size_t index) {
  const ArmRun& run = arm.runs[index];
  return fmt::format(R"(<tr><td data-label="arm"><code>{}</code></td><td data-label="seed">{}</td>)"
                     R"(<td data-label="steps">{} of {}</td><td data-label="test accuracy, %">{}</td>)"
                     R"(<td data-label="time">{}</td><td data-label="folder"><code>{}</code></td></tr>)"
                     "\n",
                     escaped(arm.name), run.seed, grouped(run.steps_done), grouped(arm.steps),
                     value_of(arm, index), duration(run.seconds), escaped(run.folder));
}

std::string run_table(const std::vector<Arm>& arms) {
  std::string rows;
  for (const Arm& arm : arms) {
    for (size_t i = 0; i < arm.runs.size(); ++i) rows += run_row(arm, i);
  }
  if (rows.empty()) return "";
  return fmt::format(
      "<details>\n<summary>Every run</summary>\n<div class=\"scroll\"><table class=\"runs\">\n"
      "<thead><tr><th>arm</th><th>seed</th><th>steps</th><th>test accuracy, "
      "%</th><th>time</th><th>folder</th></tr>"
      "</thead>\n<tbody>\n{}</tbody></table></div>\n</details>\n",
      rows);
}

}  // namespace

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
  return text + facts(results) + arm_commands(results.arms) + run_table(results.arms) + "</section>\n";
}

}  // namespace renorm::report
