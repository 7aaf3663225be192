#include "record/results.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/errors.h"

namespace renorm::record {
namespace {

Results sample() {
  Results results;
  results.name = "quick";
  results.title = "A title with \"quotes\" and <markup>";
  results.data = "strokes";
  results.model = "convnet";
  results.steps = 100;
  results.seeds = {1, 2, std::numeric_limits<uint64_t>::max()};
  results.command = "renorm reproduce --quick";
  results.versions = {{"libtorch", "1.13.0"}, {"renorm", "0.1.0"}};
  results.test_images = 4000;
  results.test = "how";
  results.figures = {{"iid", "Title", "Caption", true}, {"blocks", "Other", "", false}};
  Arm arm;
  arm.name = "iid-batchnorm";
  arm.figure = "iid";
  arm.steps = 100;
  arm.paper.test_accuracy = 78.3;
  arm.test_accuracy = measure_of({0.1, 0.2, 0.4});
  arm.train_accuracy = measure_of({});
  arm.curve = {{10, 1.0 / 3.0, {1.0 / 3.0}}};
  arm.training = {{10, std::numeric_limits<double>::quiet_NaN(), 50.0, 0.003, 1.5, 0.25, 0.01, 0.0}};
  arm.runs = {{1, "runs/iid-batchnorm/seed-1", 100, 12.5, true}};
  results.arms = {arm};
  results.claims = {{"a claim", kNotResolved, "why", false}};
  return results;
}

std::string problem_of(const std::string& text) {
  try {
    parse_results(text, "results.json");
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Results, ReadBackToTheSameBytes) {
  const std::string text = to_json(sample());
  EXPECT_EQ(to_json(parse_results(text, "f")), text);
}

TEST(Results, ReadBackToTheSameValues) {
  const Results read = parse_results(to_json(sample()), "f");
  EXPECT_EQ(read.seeds, sample().seeds);
  EXPECT_EQ(read.title, sample().title);
  const Arm& arm = read.arms.at(0);
  EXPECT_EQ(arm.test_accuracy.values, sample().arms[0].test_accuracy.values);
  EXPECT_EQ(arm.curve.at(0).mean, 1.0 / 3.0);
  EXPECT_TRUE(std::isnan(arm.training.at(0).loss));
  EXPECT_TRUE(arm.train_accuracy.has_value());
  EXPECT_FALSE(arm.batch_statistics_accuracy.has_value());
  EXPECT_EQ(arm.paper.test_accuracy, 78.3);
  EXPECT_FALSE(arm.paper.train_accuracy.has_value());
}

TEST(Results, UnknownKeysAreLeftAlone) {
  std::string text = to_json(sample());
  text.insert(1, "\"something new\": [1, {\"a\": null}],");
  EXPECT_EQ(to_json(parse_results(text, "f")), to_json(sample()));
}

TEST(Results, DamageIsNamedWithFileAndPlace) {
  const std::string text = to_json(sample());
  for (size_t length = 0; length < text.size() - 1; length += 97) {
    EXPECT_EQ(problem_of(text.substr(0, length)).rfind("results.json: ", 0), 0U) << length;
  }
  EXPECT_EQ(problem_of("[]"), "results.json: results must be a JSON object");
  EXPECT_EQ(problem_of("{\"format_version\": 2}"),
            "results.json: 'format_version' must be 1, got 2; use a newer renorm");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string altered = text;
    altered.replace(altered.find(from), from.size(), to);
    return problem_of(altered);
  };
  EXPECT_EQ(with("\"finished\": false", "\"finished\": 0"),
            "results.json: 'finished' must be true or false, got 0");
  EXPECT_EQ(with("\"steps_done\": 100", "\"steps_done\": -1"),
            "results.json: 'arms[0].runs[0].steps_done' must be a whole number of at least 0, got -1");
  EXPECT_EQ(with("\"verdict\"", "\"verdigris\""), "results.json: 'claims[0].verdict' is missing");
}

TEST(Measure, HasMeanAndSpread) {
  const Measure measure = measure_of({1.0, 2.0, 6.0});
  EXPECT_DOUBLE_EQ(measure.mean, 3.0);
  EXPECT_DOUBLE_EQ(measure.spread, std::sqrt(7.0));
  EXPECT_EQ(measure_of({5.0}).spread, 0.0);
  EXPECT_TRUE(measure_of({}).values.empty());
}

}  // namespace
}  // namespace renorm::record
