#include "report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "report/format.h"

namespace renorm::report {
namespace {

using record::Arm;
using record::TrainingPoint;

// A line of a chart: its switch in the key. series.js reads arm, field and look from the attributes.
struct Line {
  size_t arm = 0;
  std::string field = "curve";  // or a field of TrainingPoint
  std::string name;             // escaped
  Look look;
  bool reference = false;       // thin and grey
  double paper = std::nan("");  // level of the paper's figure
};

std::string switch_of(const Line& line) {
  std::string data =
      fmt::format(R"(data-arm="{}" data-field="{}" data-colour="{}" data-dash="{}")", line.arm, line.field,
                  line.reference ? "reference" : fmt::format("c{}", line.look.colour),
                  line.reference ? 0 : line.look.dash);
  if (std::isfinite(line.paper)) data += fmt::format(R"( data-paper="{}")", line.paper);
  return fmt::format(
      R"(<label{}><input type="checkbox" checked {}>{}<span class="name">{}</span><span class="value"></span></label>)"
      "\n",
      line.reference ? R"( class="repeated")" : "", data,
      line.reference ? reference_swatch() : swatch(line.look), line.name);
}

// The box of one chart. `kind` is one of series.js, `quantity` is the label of the axis; both are safe.
std::string chart(const std::string& kind, const std::string& quantity, const std::vector<Line>& lines) {
  std::string text = fmt::format(
      R"(<div class="chart" data-kind="{}"><div class="bar"><span class="quantity">{} against steps</span>)"
      R"(<button type="button" class="reset" disabled>Reset zoom</button></div>)"
      R"(<div class="plot" tabindex="0" role="application" aria-label="{} against steps; arrow keys read values"></div>)"
      R"(<fieldset class="key"><legend></legend>)"
      "\n",
      kind, quantity, quantity);
  for (const Line& line : lines) text += switch_of(line);
  return text + "</fieldset></div>\n";
}

bool any_arm(const Page& page, const std::vector<size_t>& arms, bool (*has)(const Arm&)) {
  return std::any_of(arms.begin(), arms.end(), [&](size_t i) { return has(page.results.arms[i]); });
}

bool has_curve(const Arm& arm) { return !arm.curve.empty(); }
bool has_training(const Arm& arm) { return !arm.training.empty(); }

std::vector<Line> lines_of(const Page& page, const std::vector<size_t>& arms, const std::string& field) {
  const std::vector<std::string> labels = distinct_labels(page.results.arms, arms);
  std::vector<Line> lines;
  for (size_t i = 0; i < arms.size(); ++i) {
    lines.push_back({arms[i], field, labels[i], page.looks[arms[i]]});
  }
  return lines;
}

// Whether one continues the other: an arm that is behind still has its schedule.
bool same_limits(const std::vector<TrainingPoint>& a, const std::vector<TrainingPoint>& b) {
  const size_t shared = std::min(a.size(), b.size());
  for (size_t i = 0; i < shared; ++i) {
    if (a[i].step != b[i].step || a[i].r_max != b[i].r_max || a[i].d_max != b[i].d_max) return false;
  }
  return true;
}

// Arms usually share the schedule. Of those that do, the one that is farthest.
std::vector<size_t> arms_by_limits(const Page& page, const std::vector<size_t>& arms) {
  std::vector<size_t> distinct;
  for (const size_t index : arms) {
    const auto& points = page.results.arms[index].training;
    if (points.empty()) continue;
    const auto known = std::find_if(distinct.begin(), distinct.end(), [&](size_t other) {
      return same_limits(points, page.results.arms[other].training);
    });
    if (known == distinct.end()) {
      distinct.push_back(index);
    } else if (points.size() > page.results.arms[*known].training.size()) {
      *known = index;
    }
  }
  return distinct;
}

std::vector<Line> limit_lines(const Page& page, const std::vector<size_t>& arms) {
  const std::vector<size_t> distinct = arms_by_limits(page, arms);
  const std::vector<std::string> labels = distinct_labels(page.results.arms, distinct);
  std::vector<Line> lines;
  for (size_t i = 0; i < distinct.size(); ++i) {
    const std::string of = distinct.size() == 1 ? "" : fmt::format(", {}", labels[i]);
    const int colour = page.looks[distinct[i]].colour;
    lines.push_back({distinct[i], "r_max", "r_max" + of, {colour, 0}});
    lines.push_back({distinct[i], "d_max", "d_max" + of, {distinct.size() == 1 ? 5 : colour, 1}});
  }
  return lines;
}

}  // namespace

std::string curve_chart(const Page& page, const FigureArms& entry) {
  if (!any_arm(page, entry.arms, has_curve)) return "";
  std::vector<size_t> arms = entry.arms;
  const std::optional<size_t> reference = reference_of(page.results, entry.figure);
  const bool repeated = reference && has_curve(page.results.arms[*reference]) &&
                        std::find(arms.begin(), arms.end(), *reference) == arms.end();
  if (repeated) arms.push_back(*reference);
  std::vector<Line> lines = lines_of(page, arms, "curve");
  for (Line& line : lines) {
    line.paper = page.results.arms[line.arm].paper.test_accuracy.value_or(std::nan(""));
  }
  if (repeated) {
    lines.back().reference = true;
    lines.back().paper = std::nan("");
  }
  return chart("accuracy", fmt::format("{} (%)", page.measure), lines);
}

std::string clipping_section(const Page& page) {
  std::vector<size_t> arms;
  for (const FigureArms& entry : page.figures) {
    if (entry.figure.x) continue;
    std::copy_if(entry.arms.begin(), entry.arms.end(), std::back_inserter(arms),
                 [&](size_t i) { return page.results.arms[i].renorm; });
  }
  if (!any_arm(page, arms, has_training)) return "";
  return "<section id=\"clipping\">\n<h2>Clipping of r and d</h2>\n"
         "<p class=\"small\">Fractions of all (group, channel) pairs, averaged over the layers, and the "
         "current limits.</p>\n<figure class=\"pair\">\n" +
         chart("clipped", "clipped r (% of all)", lines_of(page, arms, "r_clipped")) +
         chart("clipped", "clipped d (% of all)", lines_of(page, arms, "d_clipped")) +
         "</figure>\n<figure class=\"low\">\n" + chart("limits", "r_max and d_max", limit_lines(page, arms)) +
         "</figure>\n</section>\n";
}

std::string loss_section(const Page& page) {
  std::string charts;
  size_t count = 0;
  for (const FigureArms& entry : page.figures) {
    if (entry.figure.x || !any_arm(page, entry.arms, has_training)) continue;
    ++count;
    charts += fmt::format("<div><h3>{}</h3>\n{}</div>\n", escaped(entry.figure.title),
                          chart("loss", "training loss", lines_of(page, entry.arms, "loss")));
  }
  if (count == 0) return "";
  return fmt::format(
      "<section id=\"loss\">\n<h2>Training loss</h2>\n<figure "
      "class=\"{}\">\n{}</figure>\n</section>\n",
      count > 1 ? "pair" : "low", charts);
}

}  // namespace renorm::report
