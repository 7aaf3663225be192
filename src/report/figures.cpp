#include "report/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string>

#include "base/text.h"
#include "report/charts.h"
#include "report/format.h"
#include "report/heat_map.h"
#include "report/setting_chart.h"

namespace renorm::report {
namespace {

using record::Figure;

bool is_over_steps(const FigureArms& entry) { return !entry.figure.x; }
bool is_over_setting(const FigureArms& entry) { return entry.figure.x && !entry.figure.y; }

bool any_figure(const Page& page, bool (*is)(const FigureArms&)) {
  return std::any_of(page.figures.begin(), page.figures.end(), is);
}

std::string capitalized(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string plot_of(const Page& page, const FigureArms& entry) {
  if (is_over_steps(entry)) return curve_chart(page, entry);
  return is_over_setting(entry) ? setting_chart(page, entry) : heat_maps(page, entry);
}

// The number of test images that all arms of the figure share.
std::optional<int64_t> test_images_of(const Page& page, const FigureArms& entry) {
  std::optional<int64_t> images;
  for (const size_t index : entry.arms) {
    const std::optional<int64_t>& of_arm = page.results.arms[index].test_images;
    if (of_arm && images && *of_arm != *images) return std::nullopt;
    if (of_arm) images = of_arm;
  }
  return images;
}

// What the figure does not share with the results.
std::string setting_of(const Page& page, const FigureArms& entry) {
  const Figure& figure = entry.figure;
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : " · ") + part; };
  if (figure.data) {
    add(fmt::format("data <code>{}</code>", escaped(*figure.data)));
    const std::optional<int64_t> images = test_images_of(page, entry);
    if (images) add(fmt::format("{} test images", grouped(*images)));
  }
  if (figure.model) add(fmt::format("model <code>{}</code>", escaped(*figure.model)));
  return text.empty() ? "" : fmt::format("<p class=\"small\">{}</p>\n", text);
}

std::string figure_of(const Page& page, const FigureArms& entry) {
  std::string text = fmt::format("<figure>\n<h3>{}", escaped(entry.figure.title));
  if (page.paper && !entry.figure.in_paper) text += R"( <span class="tag">not in the paper</span>)";
  text += "</h3>\n";
  const std::string plot = plot_of(page, entry);
  text += plot.empty() ? "<p class=\"empty\">No evaluation yet.</p>\n" : plot;
  std::string below = setting_of(page, entry);
  if (!entry.figure.caption.empty()) below = escaped(entry.figure.caption) + "\n" + below;
  if (!below.empty()) text += fmt::format("<figcaption>{}</figcaption>\n", below);
  return text + "</figure>\n";
}

// How to read the charts, also on paper.
std::string reading_help(const Page& page) {
  std::string text;
  if (page.results.seeds.size() > 1) {
    text += "Lines are means over the seeds; ";
    if (any_figure(page, is_over_steps)) text += "bands show one standard deviation";
    if (any_figure(page, is_over_setting)) {
      text += any_figure(page, is_over_steps) ? ", and so do bars" : "bars show one standard deviation";
    }
    text += ". ";
  }
  const std::set<std::string> references = references_of(page);
  if (!references.empty() && page.figures.size() > 1) {
    text += fmt::format("The thin grey line repeats {}. ",
                        references.size() == 1 ? *references.begin() : "the reference of the figure");
  }
  if (page.paper && any_figure(page, is_over_steps)) {
    text +=
        "Fine dashes with a number at the right are the paper's final figures, on ImageNet, not on this "
        "data.";
  }
  return text.empty() ? "" : fmt::format("<p class=\"small\">{}</p>\n", text);
}

std::string using_help(const Page& page) {
  if (!any_figure(page, is_over_steps)) return "";
  return "<p class=\"small needs-script screen-only\">Drag over a curve to zoom (two fingers on a touch "
         "screen); "
         "double-click to reset. The pointer and the arrow keys show values.</p>\n";
}

}  // namespace

std::string figures_section(const Page& page) {
  if (page.figures.empty()) return "";
  std::string text = fmt::format("<section id=\"figures\">\n<h2>{}</h2>\n", capitalized(page.measure)) +
                     reading_help(page) + using_help(page);
  for (const FigureArms& entry : page.figures) text += figure_of(page, entry);
  return text + "</section>\n";
}

}  // namespace renorm::report
