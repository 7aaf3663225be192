#include "report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "pages.h"
#include "report/format.h"
#include "samples.h"

namespace renorm::report {
namespace {

using record::Results;
using testing::between;
using testing::contains;
using testing::count;
using testing::markup;

// The tags of the page, from '<' to '>', without quoted text.
std::vector<std::string> tags_of(const std::string& page) {
  const std::string text = markup(page);
  std::vector<std::string> tags;
  for (size_t i = text.find('<'); i != std::string::npos; i = text.find('<', i + 1)) {
    bool quoted = false;
    std::string tag;
    for (; i < text.size() && (quoted || text[i] != '>'); ++i) {
      if (text[i] == '"') quoted = !quoted;
      if (!quoted) tag += text[i];
    }
    tags.push_back(tag);
  }
  return tags;
}

std::vector<Results> all_samples() {
  return {testing::whole_experiment(),   testing::unfinished_experiment(), testing::single_run(),
          testing::hostile_experiment(), testing::settings_experiment(),   Results{}};
}

TEST(Report, FetchesNothing) {
  for (const Results& results : all_samples()) {
    const std::string page = html(results, {testing::small_png(), "data"});
    const std::string text = markup(page);
    EXPECT_EQ(count(text, " src=\""), count(text, " src=\"data:"));
    EXPECT_EQ(count(text, " href=\""), count(text, " href=\"data:") + count(text, " href=\"#"));
    for (const std::string& tag : tags_of(page)) {
      for (const char* loader : {"<iframe", "<object", "<embed", "<video", "<audio", "srcset", "<base"}) {
        EXPECT_FALSE(contains(tag, loader)) << tag;
      }
    }
    for (const char* loader : {"url(", "@import", "sourceMappingURL"}) {
      EXPECT_FALSE(contains(page, loader)) << loader;
    }
    EXPECT_TRUE(contains(page, "default-src 'none'"));
  }
}

TEST(Report, HasTheContentInOrder) {
  const std::string page = html(testing::whole_experiment(), {testing::small_png(), "First images"});
  size_t place = 0;
  for (const char* part : {"<h1>Sample for the test of the report</h1>",
                           "4 of 6 claims hold, 1 does not hold, 1 is not resolved.",
                           "Finished: 10 arms, 3 seeds, 4,000 steps each.",
                           "id=\"figures\"",
                           "data-kind=\"accuracy\"",
                           "not in the paper",
                           "id=\"table\"",
                           "paper 78.3",
                           "paper 72.8",
                           "id=\"claims\"",
                           "✓</span> holds",
                           "✗</span> does not hold",
                           "?</span> not resolved",
                           "How a verdict is reached: the difference",
                           "id=\"clipping\"",
                           "data-field=\"r_clipped\"",
                           "data-field=\"d_max\"",
                           "id=\"loss\"",
                           "id=\"data\"",
                           "First images",
                           "renorm reproduce --full",
                           "1.13.1",
                           "arms/blocks-renorm/3"}) {
    const size_t next = page.find(part, place);
    ASSERT_NE(next, std::string::npos) << part << " is missing or too early";
    place = next;
  }
  EXPECT_EQ(count(page, "data-kind=\"accuracy\""), 4u);
  EXPECT_EQ(count(page, "data-colour=\"reference\""), 3u);  // i.i.d. batchnorm in the other figures
}

TEST(Report, HoldsTheResultsAsJson) {
  for (const Results& results : all_samples()) {
    const std::string page = html(results, {});
    const std::string block = between(page, "<script type=\"application/json\" id=\"results\">", "</script>");
    EXPECT_FALSE(contains(block, "<"));
    EXPECT_TRUE(std::all_of(block.begin(), block.end(), [](char c) { return c >= ' ' && c < '\x7f'; }));
    EXPECT_EQ(record::to_json(record::parse_results(block, "block")), record::to_json(results));
  }
}

TEST(Report, KeepsNamesInTheirPlaces) {
  const std::string harmless = html(testing::whole_experiment(), {});
  const std::string page = html(testing::hostile_experiment(), {"png", "\"><script>alert(1)</script>"});
  // As many scripts as without, and no tag or attribute from a name.
  EXPECT_EQ(count(page, "<script"), count(harmless, "<script"));
  EXPECT_EQ(count(page, "</script"), count(harmless, "</script"));
  const std::string tags = markup(page);
  EXPECT_FALSE(contains(tags, "<img src=x"));
  for (const std::string& tag : tags_of(page)) {
    EXPECT_FALSE(contains(tag, " on")) << tag;  // no handler of an event
    EXPECT_FALSE(contains(tag, "window.broken")) << tag;
  }
  EXPECT_TRUE(contains(tags, "&lt;/script&gt;&lt;script&gt;window.broken=1"));
  EXPECT_EQ(count(page, "<!--"), 1u);  // the licence of the charting library
}

TEST(Report, IsUtf8WhateverTheNames) {
  const std::string page = html(testing::hostile_experiment(), {"", "\xff"});
  EXPECT_NO_THROW(nlohmann::json(page).dump());
}

TEST(Report, ShowsAnUnfinishedExperiment) {
  const std::string page = html(testing::unfinished_experiment(), {});
  EXPECT_TRUE(contains(page, "Not finished: 3 of 30 runs done, 14 % of all steps."));
  EXPECT_TRUE(contains(page, "0 of 3 runs finished"));
  EXPECT_EQ(count(page, ">not started<"), 8u);
  EXPECT_TRUE(contains(page, "<span class=\"ours\">–</span>"));
  EXPECT_EQ(count(page, "No evaluation yet."), 3u);
  EXPECT_EQ(count(page, "data-kind=\"accuracy\""), 1u);
}

TEST(Report, ShowsASingleRunWithoutThePaper) {
  const std::string tags = markup(html(testing::single_run(), {}));
  EXPECT_TRUE(contains(tags, "Finished: 4,000 steps."));
  EXPECT_FALSE(contains(tags, "paper"));
  EXPECT_FALSE(contains(tags, "id=\"claims\""));
  EXPECT_FALSE(contains(tags, "±"));
  EXPECT_EQ(count(tags, "data-kind=\"accuracy\""), 1u);
  EXPECT_FALSE(contains(tags, "id=\"data\""));
}

TEST(Report, ExplainsWhyWithImages) {
  const std::string without = html(testing::whole_experiment(), {});
  EXPECT_FALSE(contains(without, "id=\"why\""));
  ReportExtras extras;
  extras.why = WhyPanel{"strokes:decoy=<1>", "image", "meant", "decoy", "partner"};
  const std::string page = html(testing::whole_experiment(), extras);
  const std::string panel = between(page, "id=\"why\"", "</section>");
  for (const char* png : {"image", "meant", "decoy", "partner"}) {
    EXPECT_EQ(count(panel, "src=\"data:image/png;base64," + base64(png) + "\""), 1u) << png;
  }
  EXPECT_TRUE(contains(panel, "√31 ≈ 5.6"));
  EXPECT_TRUE(contains(panel, "√15 ≈ 3.9"));
  EXPECT_TRUE(contains(panel, "strokes:decoy=&lt;1&gt;"));
  EXPECT_LT(page.find("id=\"figures\""), page.find("id=\"why\""));
  EXPECT_LT(page.find("id=\"why\""), page.find("id=\"table\""));
}

TEST(Report, SaysWhereAValueIsNotANumber) {
  const std::string tags = markup(html(testing::hostile_experiment(), {}));
  EXPECT_TRUE(contains(tags, "<span class=\"ours\">NaN ± NaN</span>"));
  EXPECT_TRUE(contains(tags, "Other arms"));  // an arm whose figure does not exist is still shown
}

TEST(Report, TakesResultsWithoutAnything) {
  const std::string tags = markup(html({}, {}));
  EXPECT_TRUE(contains(tags, "<h1>Report of an experiment</h1>"));
  EXPECT_TRUE(contains(tags, "Not started"));
}

TEST(Report, ShowsDistinctLimitsOnce) {
  Results results = testing::whole_experiment();
  EXPECT_EQ(count(html(results, {}), "data-field=\"r_max\""), 1u);
  results.arms[3].training[50].r_max = 7.0;
  EXPECT_EQ(count(html(results, {}), "data-field=\"r_max\""), 2u);
}

}  // namespace
}  // namespace renorm::report
