#include "report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "report/format.h"

namespace renorm::report {
namespace {

using record::Arm;

constexpr int kColours = 9;         // .h0 to .h8 of report.css
constexpr size_t kMaxCells = 2500;  // more would neither be readable nor fit into a page

bool has_place(const Arm& arm) {
  return arm.x && arm.y && std::isfinite(arm.x->at) && std::isfinite(arm.y->at);
}

bool has_figure(const Arm& arm) {
  return !arm.test_accuracy.values.empty() && std::isfinite(arm.test_accuracy.mean);
}

// From the minimum to the maximum of all tables of a figure.
struct Scale {
  double low = 0.0;
  double high = 0.0;

  int colour(double value) const {
    if (!(high > low)) return kColours / 2;
    return std::clamp(static_cast<int>((value - low) / (high - low) * kColours), 0, kColours - 1);
  }
};

using Places = std::map<double, std::string>;  // with their texts

struct HeatMap {
  std::string name;  // escaped; "" if the figure has one only
  Places columns;
  Places rows;
  std::map<std::pair<double, double>, const Arm*> cells;  // by x and y; the first arm of a place
};

std::vector<HeatMap> maps_of(const Page& page, const FigureArms& entry) {
  std::vector<HeatMap> maps;
  std::map<std::string, size_t> known;
  for (const size_t index : entry.arms) {
    const Arm& arm = page.results.arms[index];
    if (!has_place(arm)) continue;
    const std::string name = escaped(arm.series.value_or(""));
    const auto [found, is_new] = known.emplace(name, maps.size());
    if (is_new) maps.push_back({name, {}, {}, {}});
    HeatMap& map = maps[found->second];
    map.columns.emplace(arm.x->at, arm.x->text);
    map.rows.emplace(arm.y->at, arm.y->text);
    map.cells.emplace(std::make_pair(arm.x->at, arm.y->at), &arm);
  }
  return maps;
}

Scale scale_of(const std::vector<HeatMap>& maps) {
  std::vector<double> values;
  for (const HeatMap& map : maps) {
    for (const auto& cell : map.cells) {
      if (has_figure(*cell.second)) values.push_back(cell.second->test_accuracy.mean);
    }
  }
  if (values.empty()) return {};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {*low, *high};
}

std::string cell_of(const Arm* arm, const Scale& scale) {
  if (arm == nullptr || !has_figure(*arm)) {
    return fmt::format(R"(<td class="none">{}</td>)",
                       arm == nullptr || arm->test_accuracy.values.empty() ? kNothing : "NaN");
  }
  const record::Measure& measure = arm->test_accuracy;
  std::string text = fmt::format(R"(<td class="h{}" title="{}">{})", scale.colour(measure.mean),
                                 label_of(*arm), percent(measure.mean));
  if (measure.values.size() > 1) text += fmt::format("<small>± {}</small>", percent(measure.spread));
  return text + "</td>";
}

std::string row_of(const HeatMap& map, double y, const std::string& text, const Scale& scale) {
  std::string row = fmt::format(R"(<tr><th scope="row">{}</th>)", escaped(text));
  for (const auto& column : map.columns) {
    const auto found = map.cells.find({column.first, y});
    row += cell_of(found == map.cells.end() ? nullptr : found->second, scale);
  }
  return row + "</tr>\n";
}

std::string table_of(const HeatMap& map, const record::Figure& figure, const Scale& scale) {
  if (map.columns.size() * map.rows.size() > kMaxCells) {
    return fmt::format(
        "<p class=\"empty\">{} x {} cells are too many for a heat map; the table has the figures.</p>\n",
        map.columns.size(), map.rows.size());
  }
  std::string text = "<div class=\"scroll\"><table class=\"heat\">\n";
  if (!map.name.empty()) text += fmt::format("<caption>{}</caption>\n", map.name);
  text += fmt::format(
      R"(<thead><tr><th class="axis-y" rowspan="2">{} ↑</th><th class="axis-x" colspan="{}">{} →</th></tr>)"
      "\n<tr>",
      escaped(figure.y->name), map.columns.size(), escaped(figure.x->name));
  for (const auto& column : map.columns)
    text += fmt::format(R"(<th scope="col">{})", escaped(column.second)) + "</th>";
  text += "</tr></thead>\n<tbody>\n";
  for (auto row = map.rows.rbegin(); row != map.rows.rend(); ++row) {
    text += row_of(map, row->first, row->second, scale);
  }
  return text + "</tbody></table></div>\n";
}

std::string scale_bar(const Scale& scale) {
  std::string text = fmt::format(R"(<p class="scale small" aria-hidden="true">{} )", percent(scale.low));
  for (int i = 0; i < kColours; ++i) text += fmt::format(R"(<span class="h{}"></span>)", i);
  return text + fmt::format(" {}</p>\n", percent(scale.high));
}

}  // namespace

std::string heat_maps(const Page& page, const FigureArms& entry) {
  const std::vector<HeatMap> maps = maps_of(page, entry);
  const bool any = std::any_of(maps.begin(), maps.end(), [](const HeatMap& map) {
    return std::any_of(map.cells.begin(), map.cells.end(),
                       [](const auto& cell) { return has_figure(*cell.second); });
  });
  if (!any) return "";
  const Scale scale = scale_of(maps);
  std::string text = fmt::format(
      "<div class=\"over-settings\"><div class=\"bar\"><span class=\"quantity\">{} (%)</span></div>\n<div "
      "class=\"{}\">\n",
      page.measure, maps.size() > 1 ? "maps several" : "maps");
  for (const HeatMap& map : maps) text += table_of(map, entry.figure, scale);
  return text + "</div>\n" + scale_bar(scale) + "</div>\n";
}

}  // namespace renorm::report
