// Figures over settings, and what figures and charts are called.
#include "report/figures.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <vector>

#include "pages.h"
#include "report/report.h"
#include "samples.h"

namespace renorm::report {
namespace {

using record::Results;
using testing::between;
using testing::contains;
using testing::count;
using testing::markup;

// The pieces of `text` from each `begin` to the next `end`.
std::vector<std::string> pieces(const std::string& text, const std::string& begin, const std::string& end) {
  std::vector<std::string> found;
  for (size_t i = text.find(begin); i != std::string::npos; i = text.find(begin, i + 1)) {
    found.push_back(text.substr(i, text.find(end, i) - i));
  }
  return found;
}

// All charts with a key: those over steps and those over a setting.
std::vector<std::string> keys_of(const std::string& page) {
  std::vector<std::string> keys = pieces(page, "<fieldset class=\"key\">", "</fieldset>");
  for (const std::string& chart : pieces(page, "<div class=\"over-setting\">", "</figure>")) {
    keys.push_back(between(chart, "<div class=\"key\">", "</figure>"));
  }
  return keys;
}

std::string figure_named(const std::string& page, const std::string& title) {
  return between(page, "<h3>" + title, "</figure>");
}

std::string settings_page(const Results& results = testing::settings_experiment()) {
  return markup(html(results, {}));
}

TEST(Figures, NamesAreUniqueWithinAChart) {
  Results same = testing::whole_experiment();
  for (record::Arm& arm : same.arms) arm.label = arm.renorm ? "Batch Renorm" : "batchnorm";
  same.arms[3].training[50].r_max = 7.0;
  Results equal = same;  // names, too
  for (record::Arm& arm : equal.arms) arm.name = "arm";
  for (const Results& results : {same, equal, testing::settings_experiment(), testing::whole_experiment()}) {
    for (const std::string& key : keys_of(settings_page(results))) {
      const std::vector<std::string> names = pieces(key, "<span class=\"name\">", "</span>");
      EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size()) << key;
      EXPECT_FALSE(names.empty());
    }
  }
  const std::string page = settings_page(same);
  EXPECT_TRUE(contains(between(page, "id=\"clipping\"", "</section>"), ">Batch Renorm (micro4-renorm)<"));
  EXPECT_TRUE(contains(page, ">r_max, Batch Renorm (micro4-renorm)<"));
  EXPECT_FALSE(contains(settings_page(testing::whole_experiment()), "(iid-batchnorm)"));
}

TEST(Figures, OverASettingHaveALinePerSeriesWithBarsOfSpread) {
  const std::string chart = figure_named(settings_page(), "Bias of the minibatches");
  EXPECT_TRUE(contains(chart, "recall@1 (%) against images per label (logarithmic)"));
  EXPECT_EQ(count(chart, "<svg class=\"series\""), 2u);
  EXPECT_EQ(count(chart, "<svg class=\"point\""), 10u);
  EXPECT_EQ(count(chart, "<path class=\"spread\""), 9u);  // one point is of one seed
  EXPECT_TRUE(contains(chart, "<title>batchnorm, 16x2: 64.0 ± 1.5</title>"));
  EXPECT_TRUE(contains(chart, "<title>Batch Renorm, 2x16: 68.7</title>"));
  for (const char* text : {">32x1<", ">16x2<", ">8x4<", ">4x8<", ">2x16<"}) {
    EXPECT_EQ(count(chart, text), 1u) << text;
  }
  // Equal factors are equal distances on a logarithmic axis.
  EXPECT_TRUE(contains(chart, "<text class=\"across\" x=\"28.00%\""));
  // An arm without a place, and the reference of the figure.
  EXPECT_EQ(count(chart, "class=\"level-line\""), 2u);
  EXPECT_TRUE(contains(chart, ">batchnorm (strength-split)<"));
  EXPECT_TRUE(contains(chart, "stroke=\"var(--reference)\""));
  EXPECT_TRUE(contains(chart, ">independent minibatches<"));
}

TEST(Figures, NameTheirOwnDataAndModel) {
  const std::string page = settings_page();
  const std::string chart = figure_named(page, "Bias of the minibatches");
  EXPECT_TRUE(contains(chart, "data <code>strokes:classes=50,train=200,test=40,decoy=0.7</code>"));
  EXPECT_TRUE(contains(chart, "2,000 test images"));
  EXPECT_TRUE(contains(chart, "model <code>mlp:512,512,512</code>"));
  EXPECT_FALSE(contains(figure_named(page, "Independent minibatches"), "data <code>"));
}

TEST(Figures, OfOtherDataDoNotRepeatTheReferenceOfTheResults) {
  Results results = testing::settings_experiment();
  results.figures[1].reference = std::nullopt;
  EXPECT_FALSE(contains(figure_named(settings_page(results), "Bias of the minibatches"), "--reference"));
  results.figures[1].data.reset();
  results.figures[1].model.reset();
  EXPECT_TRUE(contains(figure_named(settings_page(results), "Bias of the minibatches"), "--reference"));
}

TEST(Figures, OverTwoSettingsAreHeatMapsOnOneScale) {
  const std::string maps = figure_named(settings_page(), "Limits of the clipping");
  EXPECT_EQ(count(maps, "<table class=\"heat\">"), 2u);
  EXPECT_EQ(count(maps, "<caption>"), 2u);
  EXPECT_EQ(count(maps, "<td class=\"h"), 36u);
  EXPECT_EQ(count(maps, "<td class=\"none\">–</td>"), 4u);  // a missing arm and one without figures in each
  EXPECT_TRUE(contains(maps, ">73.5<small>± 1.5</small></td>"));  // r_max 4, d_max 3
  EXPECT_TRUE(contains(maps, "r_max →"));
  EXPECT_TRUE(contains(maps, "d_max ↑"));
  EXPECT_LT(maps.find(">d3</th>"), maps.find(">d0</th>"));
  EXPECT_TRUE(contains(maps, "<td class=\"h8\" title=\"Batch Renorm, 5\">75.0"));
  EXPECT_TRUE(contains(maps, "<td class=\"h0\" title=\"Batch Renorm, 1\">54.0"));
}

TEST(Figures, TakePlacesAndFiguresThatNoChartCanShow) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  Results results = testing::settings_experiment();
  double odd[] = {kNan, -1.0, 0.0, 1e308, -1e308};
  size_t next = 0;
  for (record::Arm& arm : results.arms) {
    if (arm.x) arm.x->at = odd[next++ % 5];
    if (arm.x) arm.x->text = std::string(300, 'w') + "\xff</text>";
    if (arm.y) arm.y->at = odd[next % 5];
    if (next % 7 == 0) arm.test_accuracy = record::measure_of({kNan, 1e300});
    if (next % 7 == 1) arm.test_accuracy = record::measure_of({1e300});
  }
  const std::string page = settings_page(results);
  EXPECT_FALSE(contains(figure_named(page, "Bias of the minibatches"), "nan"));
  EXPECT_FALSE(contains(figure_named(page, "Bias of the minibatches"), "inf%"));
  EXPECT_FALSE(contains(page, "</text></text>"));
  EXPECT_FALSE(contains(page, "(logarithmic)"));  // a place has no logarithm
}

TEST(Figures, AHeatMapOfTooManyCellsIsLeftOut) {
  Results results = testing::settings_experiment();
  const record::Arm arm = results.arms.back();
  for (int i = 0; i < 2000; ++i) {
    results.arms.push_back(arm);
    results.arms.back().x = record::Place{100.0 + i, "x"};
    results.arms.back().y = record::Place{100.0 + i, "y"};
  }
  const std::string maps = figure_named(settings_page(results), "Limits of the clipping");
  EXPECT_TRUE(contains(maps, "too many for a heat map"));
  EXPECT_EQ(count(maps, "<table class=\"heat\">"), 1u);
}

TEST(Figures, WithoutAnyValueSaySo) {
  Results results = testing::settings_experiment();
  for (record::Arm& arm : results.arms) arm.test_accuracy = {};
  EXPECT_EQ(count(settings_page(results), "No evaluation yet."), 2u);
}

TEST(Figures, OnlyCurvesHaveChartsOfTheirTraining) {
  Results results = testing::settings_experiment();
  for (record::Arm& arm : results.arms) arm.training = results.arms[1].training;
  const std::string page = settings_page(results);
  EXPECT_EQ(count(page, "data-kind=\"loss\""), 1u);
  EXPECT_EQ(count(page, "data-field=\"r_clipped\""), 1u);
}

TEST(Table, HasTheMeasureOfTheResultsAndFurtherOnes) {
  const std::string page = settings_page();
  EXPECT_FALSE(contains(page, "test accuracy"));
  EXPECT_TRUE(contains(page, "<h2>Recall@1</h2>"));
  const std::string table = between(page, "id=\"table\"", "</section>");
  EXPECT_TRUE(contains(table, "<th scope=\"col\">recall@1,&nbsp;%</th>"));
  EXPECT_TRUE(contains(table, "<th scope=\"col\">recall@5, %</th>"));
  EXPECT_TRUE(contains(table, "<td data-label=\"recall@5, %\"><span class=\"ours\">83.5 ± 0.7</span></td>"));
  EXPECT_TRUE(contains(table,
                       "final recall@1 of its figure's reference: batchnorm, i.i.d. minibatches of 32, "
                       "independent minibatches."));
}

}  // namespace
}  // namespace renorm::report
