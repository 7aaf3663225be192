#include "report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

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

}  // namespace

std::vector<Look> looks_of(const std::vector<record::Arm>& arms) {
  std::vector<Look> looks;
  std::map<std::string, int> batchnorm_in;  // figure -> arms so far
  std::map<std::string, int> renorm_in;
  int renorm_arms = 0;
  for (const record::Arm& arm : arms) {
    if (arm.renorm) {
      const bool first = renorm_in[arm.figure]++ == 0;
      looks.push_back({kWarm + renorm_arms++ % kCool, first ? 0 : 4});
    } else {
      const int place = batchnorm_in[arm.figure]++;
      looks.push_back({place % kWarm, 1 + place % 3});
    }
  }
  return looks;
}

std::string swatch(const Look& look) {
  return line_sample(fmt::format("c{}", look.colour), kDashes[look.dash], look.dash == 0 ? "2.6" : "2.2");
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

size_t reference_arm(const record::Results& results) {
  const auto found = std::find_if(results.arms.begin(), results.arms.end(),
                                  [&](const record::Arm& arm) { return arm.name == results.reference; });
  return static_cast<size_t>(std::distance(results.arms.begin(), found));
}

bool mentions_paper(const record::Results& results) {
  return std::any_of(results.arms.begin(), results.arms.end(), [](const record::Arm& arm) {
    return arm.paper.test_accuracy || arm.paper.train_accuracy || arm.paper.batch_statistics_accuracy;
  });
}

Page::Page(const record::Results& of)
    : results(of), figures(figures_of(of)), looks(looks_of(of.arms)), paper(mentions_paper(of)) {}

std::string label_of(const record::Arm& arm) { return escaped(arm.label.empty() ? arm.name : arm.label); }

}  // namespace renorm::report
