#include "report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

// The box of one chart. `kind` is one of series.js, `quantity` is the label of the axis; neither is user
// input.
std::string chart(const std::string& kind, const std::string& quantity, const std::vector<Line>& lines) {
  std::string text = fmt::format(
      R"(<div class="chart" data-kind="{}"><div class="bar"><span class="quantity">{}</span>)"
      R"(<button type="button" class="reset" disabled>Reset zoom</button></div>)"
      R"(<div class="plot" tabindex="0" role="application" aria-label="{} against steps; arrow keys read values"></div>)"
      R"(<fieldset class="key"><legend></legend>)"
      "\n",
      kind, quantity, quantity);
  for (const Line& line : lines) text += switch_of(line);
  return text + "</fieldset></div>\n";
}

std::string nothing_yet(const char* what) { return fmt::format("<p class=\"empty\">{}</p>\n", what); }

bool any_arm(const Page& page, const std::vector<size_t>& arms, bool (*has)(const Arm&)) {
  return std::any_of(arms.begin(), arms.end(), [&](size_t i) { return has(page.results.arms[i]); });
}

bool has_curve(const Arm& arm) { return !arm.curve.empty(); }
bool has_training(const Arm& arm) { return !arm.training.empty(); }

std::vector<Line> lines_of(const Page& page, const std::vector<size_t>& arms, const std::string& field) {
  std::vector<Line> lines;
  for (const size_t index : arms) {
    const Arm& arm = page.results.arms[index];
    Line line{index, field, label_of(arm), page.looks[index]};
    if (field == "curve") line.paper = arm.paper.test_accuracy.value_or(std::nan(""));
    lines.push_back(line);
  }
  return lines;
}

std::string accuracy_figure(const Page& page, const FigureArms& entry) {
  std::vector<Line> lines = lines_of(page, entry.arms, "curve");
  const size_t reference = reference_arm(page.results);
  const bool repeated = reference < page.results.arms.size() && has_curve(page.results.arms[reference]) &&
                        std::find(entry.arms.begin(), entry.arms.end(), reference) == entry.arms.end();
  if (repeated) {
    Line line{reference, "curve", label_of(page.results.arms[reference]), {}};
    line.reference = true;
    lines.push_back(line);
  }
  std::string text = fmt::format("<figure>\n<h3>{}", escaped(entry.figure.title));
  if (page.paper && !entry.figure.in_paper) text += R"( <span class="tag">not in the paper</span>)";
  text += "</h3>\n";
  text += any_arm(page, entry.arms, has_curve) ? chart("accuracy", "test accuracy, %", lines)
                                               : nothing_yet("No evaluation yet.");
  if (!entry.figure.caption.empty()) {
    text += fmt::format("<figcaption>{}</figcaption>\n", escaped(entry.figure.caption));
  }
  return text + "</figure>\n";
}

// How to read the charts, also on paper, and how to use them.
std::string chart_help(const Page& page) {
  std::string text;
  if (page.results.seeds.size() > 1) {
    text += "Lines are means over the seeds; bands show one standard deviation. ";
  }
  const size_t reference = reference_arm(page.results);
  if (reference < page.results.arms.size() && page.figures.size() > 1) {
    text += fmt::format("The thin grey line repeats {}. ", label_of(page.results.arms[reference]));
  }
  if (page.paper) {
    text +=
        "Fine dashes with a number at the right are the paper's final figures, on ImageNet, not on this "
        "data.";
  }
  if (!text.empty()) text = fmt::format("<p class=\"small needs-script\">{}</p>\n", text);
  return text +
         "<p class=\"small needs-script screen-only\">Drag over a chart to zoom (two fingers on a touch "
         "screen); "
         "double-click to reset. The pointer and the arrow keys show values.</p>\n";
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
  std::vector<Line> lines;
  for (const size_t index : distinct) {
    const std::string of =
        distinct.size() == 1 ? "" : fmt::format(", {}", label_of(page.results.arms[index]));
    const int colour = page.looks[index].colour;
    lines.push_back({index, "r_max", "r_max" + of, {colour, 0}});
    lines.push_back({index, "d_max", "d_max" + of, {distinct.size() == 1 ? 5 : colour, 1}});
  }
  return lines;
}

}  // namespace

std::string accuracy_section(const Page& page) {
  if (page.figures.empty()) return "";
  std::string text = "<section id=\"figures\">\n<h2>Accuracy against steps</h2>\n" + chart_help(page);
  for (const FigureArms& entry : page.figures) text += accuracy_figure(page, entry);
  return text + "</section>\n";
}

std::string clipping_section(const Page& page) {
  std::vector<size_t> arms;
  for (size_t i = 0; i < page.results.arms.size(); ++i) {
    if (page.results.arms[i].renorm) arms.push_back(i);
  }
  if (!any_arm(page, arms, has_training)) return "";
  return "<section id=\"clipping\">\n<h2>Clipping of r and d against steps</h2>\n"
         "<p class=\"small\">Fractions of all (group, channel) pairs, averaged over the layers, and the "
         "current "
         "limits.</p>\n<figure class=\"pair\">\n" +
         chart("clipped", "clipped r, % of all", lines_of(page, arms, "r_clipped")) +
         chart("clipped", "clipped d, % of all", lines_of(page, arms, "d_clipped")) +
         "</figure>\n<figure class=\"low\">\n" + chart("limits", "r_max and d_max", limit_lines(page, arms)) +
         "</figure>\n</section>\n";
}

std::string loss_section(const Page& page) {
  std::string charts;
  size_t count = 0;
  for (const FigureArms& entry : page.figures) {
    if (!any_arm(page, entry.arms, has_training)) continue;
    ++count;
    charts += fmt::format("<div><h3>{}</h3>\n{}</div>\n", escaped(entry.figure.title),
                          chart("loss", "training loss", lines_of(page, entry.arms, "loss")));
  }
  if (count == 0) return "";
  return fmt::format(
      "<section id=\"loss\">\n<h2>Training loss against steps</h2>\n<figure "
      "class=\"{}\">\n{}</figure>\n</section>\n",
      count > 1 ? "pair" : "low", charts);
}

}  // namespace renorm::report
