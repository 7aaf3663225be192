// Several folders in one page.
#include "report/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "pages.h"
#include "samples.h"

namespace renorm::report {
namespace {

using record::Results;
using testing::between;
using testing::contains;
using testing::count;
using testing::markup;

// Every seed of the second folder is two points better.
std::vector<NamedResults> two_folders() {
  Results better = testing::whole_experiment();
  for (record::Arm& arm : better.arms) {
    for (double& value : arm.test_accuracy.values) value += 2.0;
    arm.test_accuracy = record::measure_of(arm.test_accuracy.values);
  }
  return {{"a", testing::whole_experiment()}, {"b", better}};
}

TEST(Compare, ArmsOfOneNameFollowEachOther) {
  const Results results = merged(two_folders());
  ASSERT_EQ(results.arms.size(), 20u);
  EXPECT_EQ(results.arms[0].name, "iid-batchnorm (a)");
  EXPECT_EQ(results.arms[1].name, "iid-batchnorm (b)");
  EXPECT_EQ(results.arms[1].label, "batchnorm, i.i.d. minibatches of 32 (b)");
  EXPECT_EQ(results.arms[1].runs[0].folder, "b/arms/iid-batchnorm/1");
  EXPECT_TRUE(results.arms[0].paper.test_accuracy.has_value());
  EXPECT_FALSE(results.arms[1].paper.test_accuracy.has_value());
  EXPECT_EQ(results.figures.size(), 4u);
  EXPECT_EQ(results.claims.size(), 12u);
  EXPECT_EQ(results.data, testing::whole_experiment().data);
  EXPECT_EQ(record::to_json(record::parse_results(record::to_json(results), "f")), record::to_json(results));
}

TEST(Compare, PageHasSharedChartsAndTheDifferences) {
  const std::string page = markup(comparison_html(two_folders(), {}));
  EXPECT_TRUE(contains(page, "<h1>Comparison of a, b</h1>"));
  EXPECT_TRUE(contains(page, "b: 4 of 6 claims hold"));
  EXPECT_TRUE(contains(page, "a: Finished: 10 arms, 3 seeds, 4,000 steps each."));
  EXPECT_EQ(count(page, "data-kind=\"accuracy\""), 4u);
  const std::string first = between(page, "<h3>Independent minibatches", "</figure>");
  EXPECT_TRUE(contains(first, ">batchnorm, i.i.d. minibatches of 32 (a)<"));
  EXPECT_TRUE(contains(first, ">batchnorm, i.i.d. minibatches of 32 (b)<"));
  EXPECT_EQ(count(page, "data-colour=\"reference\""), 3u);
  const std::string table = between(page, "id=\"comparison\"", "</section>");
  EXPECT_EQ(count(table, "<tr><th scope=\"row\">"), 10u);
  EXPECT_EQ(count(table, "<td data-label=\"b − a\"><span class=\"ours\">+2.0 ± 0.0</span></td>"), 10u);
  EXPECT_LT(page.find("id=\"figures\""), page.find("id=\"comparison\""));
  EXPECT_LT(page.find("id=\"comparison\""), page.find("id=\"table\""));
}

TEST(Compare, LinesOfAChartLookDifferent) {
  const Results results = merged(two_folders());
  const Page page(results);
  for (const FigureArms& entry : page.figures) {
    std::set<std::pair<int, int>> looks;
    for (const size_t index : entry.arms) looks.emplace(page.looks[index].colour, page.looks[index].dash);
    EXPECT_EQ(looks.size(), entry.arms.size()) << entry.figure.id;
  }
}

TEST(Compare, NamesOfAChartStayShort) {
  std::vector<NamedResults> folders = two_folders();
  for (NamedResults& folder : folders) {
    for (record::Arm& arm : folder.results.arms) arm.label = arm.renorm ? "Batch Renorm" : "batchnorm";
  }
  const std::string clipping = between(markup(comparison_html(folders, {})), "id=\"clipping\"", "</section>");
  EXPECT_TRUE(contains(clipping, "<span class=\"name\">Batch Renorm (micro4-renorm) (b)</span>"));
}

TEST(Compare, WithoutSharedSeedsTheMeansAreCompared) {
  std::vector<NamedResults> folders = two_folders();
  folders[1].results.seeds = {11, 12, 13};
  for (record::Arm& arm : folders[1].results.arms) {
    for (record::ArmRun& run : arm.runs) run.seed += 10;
  }
  EXPECT_EQ(count(comparison_html(folders, {}), "<span class=\"ours\">+2.0</span>"), 10u);
}

TEST(Compare, FoldersMayDifferInEverything) {
  std::vector<NamedResults> folders = two_folders();
  Results& other = folders[1].results;
  other.data = "mnist:/data";
  other.steps = 100;
  other.arms.erase(other.arms.begin());
  other.arms.back().name = "new";
  other.arms.back().figure = "new";
  other.arms[1].test_accuracy = {};
  other.figures.push_back({"new", "New", "", false});
  other.versions["renorm"] = "0.2.0";
  const Results results = merged(folders);
  EXPECT_EQ(results.data, "");
  EXPECT_EQ(results.versions.at("renorm"), "0.1.0 (a); 0.2.0 (b)");
  EXPECT_EQ(results.figures.size(), 5u);
  const std::string page = markup(comparison_html(folders, {}));
  const std::string table = between(page, "id=\"comparison\"", "</section>");
  EXPECT_EQ(count(table, "<tr><th scope=\"row\">"), 11u);
  EXPECT_EQ(count(table, "<td data-label=\"b − a\" class=\"none\">"), 4u);
  EXPECT_TRUE(contains(table, "<code>mnist:/data</code>"));
}

TEST(Compare, SettingsHaveALineAndAHeatMapPerFolder) {
  const std::string page = markup(
      comparison_html({{"a", testing::settings_experiment()}, {"b", testing::settings_experiment()}}, {}));
  EXPECT_EQ(count(page, "<table class=\"heat\">"), 4u);
  EXPECT_EQ(count(page, "<svg class=\"series\""), 4u);
  EXPECT_TRUE(contains(page, ">batchnorm (b)<"));
  EXPECT_TRUE(contains(page, ">independent minibatches (a)<"));
}

TEST(Compare, NamesOfFoldersAreEscaped) {
  const std::string page = comparison_html(
      {{"<img src=x>", testing::whole_experiment()}, {"b", testing::hostile_experiment()}}, {});
  EXPECT_FALSE(contains(markup(page), "<img src=x"));
  EXPECT_EQ(count(page, "<script"), count(html(testing::whole_experiment(), {}), "<script"));
}

}  // namespace
}  // namespace renorm::report
