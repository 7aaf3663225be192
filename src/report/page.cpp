#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "report/format.h"

namespace renorm::report {
namespace {

constexpr int kWarm = 3;  // --c0 to --c2
constexpr int kCool = 4;  // --c3 to --c6

// stroke-dasharray by Look::dash; series.js has the same patterns.
constexpr const char* kDashes[] = {"none", "6 3", "2 2.5", "9 3 2 3", "13 4"};

std::string line_sample(const std::string& colour, const char* dashes, const char* width) {
  return fmt::format(
      R"svg(<svg class="swatch" width="26" height="10" viewBox="0 0 26 10" aria-hidden="true">)svg"
      R"svg(<line x1="0" y1="5" x2="26" y2="5" stroke="var(--{})" stroke-width="{}" stroke-dasharray="{}"/></svg>)svg",
      colour, width, dashes);
}

// `place` counts the lines of a kind in a figure. Lines of one colour have different dashes.
Look batchnorm_look(int place) { return {place % kWarm, 1 + (place + place / kWarm) % 3}; }

Look renorm_look(int line, int place) {
  const int round = place / kCool;
  return {kWarm + line % kCool, place == 0 ? 0 : (round == 0 ? 4 : 1 + (round - 1) % 3)};
}

std::optional<size_t> arm_named(const record::Results& results, const std::string& name) {
  const auto found = std::find_if(results.arms.begin(), results.arms.end(),
                                  [&](const record::Arm& arm) { return arm.name == name; });
  if (found == results.arms.end()) return std::nullopt;
  return static_cast<size_t>(std::distance(results.arms.begin(), found));
}

// "LABEL (NAME)", or "LABEL (NAME) (FOLDER)" where both end with the folder.
std::string qualified(const std::string& label, const std::string& name) {
  const size_t place = name.rfind(" (");
  const std::string folder = place == std::string::npos ? "" : name.substr(place);
  const bool both = !folder.empty() && label.size() >= folder.size() &&
                    label.compare(label.size() - folder.size(), folder.size(), folder) == 0;
  if (!both) return fmt::format("{} ({})", label, name);
  return fmt::format("{} ({}){}", label.substr(0, label.size() - folder.size()), name.substr(0, place),
                     folder);
}

}  // namespace

std::vector<Look> looks_of(const std::vector<record::Arm>& arms) {
  std::vector<Look> looks;
  std::map<std::string, int> batchnorm_in;  // figure -> lines so far
  std::map<std::string, int> renorm_in;
  std::map<std::pair<std::string, std::string>, Look> of_series;  // by figure and series
  int renorm_lines = 0;
  for (const record::Arm& arm : arms) {
    const auto series = std::make_pair(arm.figure, arm.series.value_or(""));
    if (arm.x && of_series.count(series) > 0) {
      looks.push_back(of_series[series]);
      continue;
    }
    looks.push_back(arm.renorm ? renorm_look(renorm_lines++, renorm_in[arm.figure]++)
                               : batchnorm_look(batchnorm_in[arm.figure]++));
    if (arm.x) of_series[series] = looks.back();
  }
  return looks;
}

const char* dashes(const Look& look) { return kDashes[look.dash]; }

std::string swatch(const Look& look) {
  return line_sample(fmt::format("c{}", look.colour), dashes(look), look.dash == 0 ? "2.6" : "2.2");
}

std::string reference_swatch() { return line_sample("reference", "none", "1.4"); }

std::vector<FigureArms> figures_of(const record::Results& results) {
  std::vector<FigureArms> figures;
  figures.reserve(results.figures.size() + 1);
  for (const record::Figure& figure : results.figures) figures.push_back({figure, {}});
  FigureArms others{{"", "Other arms", "", false}, {}};
  for (size_t i = 0; i < results.arms.size(); ++i) {
    const auto found = std::find_if(figures.begin(), figures.end(), [&](const FigureArms& entry) {
      return entry.figure.id == results.arms[i].figure;
    });
    (found == figures.end() ? others : *found).arms.push_back(i);
  }
  if (!others.arms.empty()) figures.push_back(others);
  return figures;
}

std::optional<size_t> reference_of(const record::Results& results, const record::Figure& figure) {
  if (figure.reference) return arm_named(results, *figure.reference);
  if (figure.data || figure.model) return std::nullopt;
  return arm_named(results, results.reference);
}

bool mentions_paper(const record::Results& results) {
  return std::any_of(results.arms.begin(), results.arms.end(), [](const record::Arm& arm) {
    return arm.paper.test_accuracy || arm.paper.train_accuracy || arm.paper.batch_statistics_accuracy;
  });
}

Page::Page(const record::Results& of)
    : results(of),
      figures(figures_of(of)),
      looks(looks_of(of.arms)),
      paper(mentions_paper(of)),
      measure(escaped(of.measure.value_or("test accuracy"))) {}

std::string label_of(const record::Arm& arm) { return escaped(arm.label.empty() ? arm.name : arm.label); }

std::set<std::string> references_of(const Page& page) {
  std::set<std::string> labels;
  for (const FigureArms& entry : page.figures) {
    const std::optional<size_t> reference = reference_of(page.results, entry.figure);
    if (reference) labels.insert(label_of(page.results.arms[*reference]));
  }
  return labels;
}

std::vector<std::string> distinct_labels(const std::vector<record::Arm>& arms,
                                         const std::vector<size_t>& which,
                                         const std::vector<std::string>& taken) {
  std::map<std::string, int> arms_with;
  for (const std::string& label : taken) ++arms_with[label];
  for (const size_t index : which) ++arms_with[label_of(arms[index])];
  std::vector<std::string> labels;
  std::set<std::string> used(taken.begin(), taken.end());
  std::map<std::string, int> last_number;
  for (const size_t index : which) {
    std::string label = label_of(arms[index]);
    if (arms_with[label] > 1) label = qualified(label, escaped(arms[index].name));
    const std::string base = label;
    int& number = last_number.emplace(base, 1).first->second;
    while (!used.insert(label).second) label = fmt::format("{} #{}", base, ++number);
    labels.push_back(std::move(label));
  }
  return labels;
}

}  // namespace renorm::report
