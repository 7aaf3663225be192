#include "record/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/random.h"
#include "base/text.h"
#include "temporary_folder.h"

namespace renorm::record {
namespace {

using nlohmann::json;
using renorm::testing::expect_error;

// Doubles of every size, so that a printer of 15 or 16 digits fails.
double draw(RandomStream& stream) {
  return std::ldexp(stream.uniform(-1.0, 1.0), static_cast<int>(stream.below(200)) - 100);
}

Summary make_summary(RandomStream& stream) {
  return {draw(stream), draw(stream), draw(stream), draw(stream)};
}

StepRecord make_step(RandomStream& stream, int layers) {
  StepRecord record;
  record.step = stream.below(int64_t{1} << 62);
  for (double* field : {&record.epoch, &record.loss, &record.accuracy, &record.learning_rate,
                        &record.gradient_norm, &record.r_max, &record.d_max, &record.r_clipped_above,
                        &record.r_clipped_below, &record.d_clipped, &record.images_per_second}) {
    *field = draw(stream);
  }
  for (int i = 0; i < layers; ++i) {
    record.layers.push_back({"blocks." + std::to_string(i), draw(stream), draw(stream), draw(stream),
                             make_summary(stream), make_summary(stream)});
  }
  return record;
}

EvaluationRecord make_evaluation(RandomStream& stream) {
  return {stream.below(1000000),
          draw(stream),
          "test",
          stream.below(1000000),
          {draw(stream), draw(stream)},
          {draw(stream), draw(stream)},
          draw(stream),
          stream.below(100)};
}

void expect_same(const Summary& a, const Summary& b) {
  EXPECT_EQ(a.mean, b.mean);
  EXPECT_EQ(a.std, b.std);
  EXPECT_EQ(a.min, b.min);
  EXPECT_EQ(a.max, b.max);
}

void expect_same(const StepRecord& a, const StepRecord& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.accuracy, b.accuracy);
  EXPECT_EQ(a.learning_rate, b.learning_rate);
  EXPECT_EQ(a.gradient_norm, b.gradient_norm);
  EXPECT_EQ(a.r_max, b.r_max);
  EXPECT_EQ(a.d_max, b.d_max);
  EXPECT_EQ(a.r_clipped_above, b.r_clipped_above);
  EXPECT_EQ(a.r_clipped_below, b.r_clipped_below);
  EXPECT_EQ(a.d_clipped, b.d_clipped);
  EXPECT_EQ(a.images_per_second, b.images_per_second);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) {
    EXPECT_EQ(a.layers[i].name, b.layers[i].name);
    EXPECT_EQ(a.layers[i].r_clipped_above, b.layers[i].r_clipped_above);
    EXPECT_EQ(a.layers[i].r_clipped_below, b.layers[i].r_clipped_below);
    EXPECT_EQ(a.layers[i].d_clipped, b.layers[i].d_clipped);
    expect_same(a.layers[i].r, b.layers[i].r);
    expect_same(a.layers[i].d, b.layers[i].d);
  }
}

void expect_same(const EvaluationRecord& a, const EvaluationRecord& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.split, b.split);
  EXPECT_EQ(a.images, b.images);
  EXPECT_EQ(a.averaged.accuracy, b.averaged.accuracy);
  EXPECT_EQ(a.averaged.loss, b.averaged.loss);
  EXPECT_EQ(a.raw.accuracy, b.raw.accuracy);
  EXPECT_EQ(a.raw.loss, b.raw.loss);
  EXPECT_EQ(a.seconds, b.seconds);
}

TEST(Metrics, ReadBackToTheSameBits) {
  RandomStream stream(1, Purpose::kModel);
  std::string text;
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
  for (int i = 0; i < 300; ++i) {
    steps.push_back(make_step(stream, i % 4));
    evaluations.push_back(make_evaluation(stream));
    text += to_json_line(steps.back()) + "\n" + to_json_line(evaluations.back()) + "\n";
  }
  const Metrics metrics = parse_metrics(text, "metrics.jsonl");
  ASSERT_EQ(metrics.steps.size(), steps.size());
  ASSERT_EQ(metrics.evaluations.size(), evaluations.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    expect_same(metrics.steps[i], steps[i]);
    expect_same(metrics.evaluations[i], evaluations[i]);
  }
}

TEST(Metrics, KeysAreThoseThatAreDocumented) {
  const json step = json::parse(
      to_json_line(StepRecord{1, 0.5, 2.0, 50.0, 0.1, 3.0, 1.0, 0.0, 0, 0, 0, 9.0, 2.5, 7, {{}}}));
  EXPECT_EQ(step["kind"], "step");
  for (const char* key : {"step", "epoch", "loss", "accuracy", "learning_rate", "gradient_norm", "r_max",
                          "d_max", "r_clipped_above", "r_clipped_below", "d_clipped", "images_per_second"}) {
    EXPECT_TRUE(step.contains(key) && step[key].is_number()) << key;
  }
  EXPECT_EQ(step["loss"], 2.0);
  EXPECT_EQ(step["data_wait_percent"], 2.5);
  EXPECT_EQ(step["skipped_images"], 7);
  // Data in memory is not waited for, and none of it is bad.
  const json in_memory = json::parse(to_json_line(StepRecord()));
  EXPECT_FALSE(in_memory.contains("data_wait_percent") || in_memory.contains("skipped_images"));
  EXPECT_EQ(step["layers"][0].size(), 6u);
  EXPECT_EQ(step["layers"][0]["r"].size(), 4u);
  const json evaluation =
      json::parse(to_json_line(EvaluationRecord{5, 1.5, "test", 9, {1, 2}, {3, 4}, 6, 8}));
  EXPECT_EQ(evaluation, json::parse(R"({"kind": "evaluation", "step": 5, "epoch": 1.5, "split": "test",
      "images": 9, "accuracy": 1.0, "loss": 2.0, "raw_accuracy": 3.0, "raw_loss": 4.0, "seconds": 6.0, "skipped_images": 8})"));
  EXPECT_EQ(to_json_line(EvaluationRecord{}).find("{\"kind\":\"evaluation\",\"step\":0"), 0u);
}

TEST(Metrics, TheFirstLineHasTheIdOfTheRun) {
  StepRecord step;
  EvaluationRecord evaluation;
  EXPECT_FALSE(parse_metrics(to_json_line(step) + "\n" + to_json_line(evaluation), "m").run());
  EXPECT_FALSE(parse_metrics("", "m").run());
  step.run = "0123456789abcdef";
  EXPECT_EQ(parse_metrics(to_json_line(step) + "\n" + to_json_line(evaluation), "m").run(), step.run);
  evaluation.run = step.run;
  EXPECT_EQ(parse_metrics(to_json_line(evaluation) + "\n" + to_json_line(StepRecord()), "m").run(), step.run);
}

TEST(Metrics, WhatIsNotFiniteIsNullAndReadsAsNan) {
  StepRecord record;
  record.loss = std::nan("");
  record.r_max = std::numeric_limits<double>::infinity();
  record.d_max = -std::numeric_limits<double>::infinity();
  const std::string line = to_json_line(record);
  EXPECT_TRUE(json::parse(line)["loss"].is_null());
  const StepRecord read = parse_metrics(line + "\n", "x").steps.at(0);
  EXPECT_TRUE(std::isnan(read.loss));
  EXPECT_TRUE(std::isnan(read.r_max));
  EXPECT_TRUE(std::isnan(read.d_max));
}

TEST(Metrics, NegativeZeroStaysNegative) {
  StepRecord record;
  record.loss = -0.0;
  EXPECT_TRUE(std::signbit(parse_metrics(to_json_line(record) + "\n", "x").steps.at(0).loss));
}

TEST(Metrics, ARecordIsOneLineWhateverTheNames) {
  StepRecord record;
  record.layers.emplace_back().name = "a\n\"b\"\\ \xff";
  const std::string line = to_json_line(record);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(parse_metrics(line, "x").steps.at(0).layers.at(0).name.substr(0, 6), "a\n\"b\"\\");
}

TEST(Metrics, ALineThatWasCutShortIsIgnoredAtAnyByte) {
  RandomStream stream(2, Purpose::kModel);
  const std::string first = to_json_line(make_step(stream, 1)) + "\n";
  const std::string second = to_json_line(make_step(stream, 1));
  for (size_t length = 0; length < second.size(); ++length) {
    EXPECT_EQ(parse_metrics(first + second.substr(0, length), "x").steps.size(), 1u) << length;
  }
  EXPECT_EQ(parse_metrics(first + second, "x").steps.size(), 2u);
  EXPECT_EQ(parse_metrics(first + second + "\n", "x").steps.size(), 2u);
  EXPECT_EQ(parse_metrics(first + std::string(100, '\0'), "x").steps.size(), 1u);
  EXPECT_EQ(parse_metrics("", "x").steps.size(), 0u);
}

TEST(Metrics, UnknownKeysAreLeftAlone) {
  json object = json::parse(to_json_line(EvaluationRecord{}));
  object["skipped_images"] = 3;
  EXPECT_EQ(parse_metrics(object.dump() + "\n", "x").evaluations.size(), 1u);
}

// A record with one key replaced, on line 2 of a file.
std::string with(const std::string& key, const json& value) {
  StepRecord record;
  record.layers.emplace_back();
  json object = json::parse(to_json_line(record));
  object[json::json_pointer(key)] = value;
  return to_json_line(StepRecord{}) + "\n" + object.dump() + "\n";
}

std::string without(const std::string& key) {
  json object = json::parse(to_json_line(StepRecord{}));
  object.erase(key);
  return to_json_line(StepRecord{}) + "\n" + object.dump() + "\n";
}

TEST(Metrics, RefusesBadRecordsByFileAndLine) {
  const std::string good = to_json_line(StepRecord{}) + "\n";
  const std::pair<std::string, std::string> cases[] = {
      {good + "\n", "m.jsonl:2: not valid JSON"},
      {good + "{\n" + good, "m.jsonl:2: not valid JSON"},
      {good + "7\n", "m.jsonl:2: a record must be a JSON object"},
      {good + "{}\n", "m.jsonl:2: 'kind' is missing"},
      {with("/kind", "steps"), "m.jsonl:2: unknown kind of record 'steps'; did you mean 'step'?"},
      {with("/kind", 3), "m.jsonl:2: 'kind' must be a string, got 3"},
      {with("/kind", "evaluation"), "m.jsonl:2: 'split' is missing"},
      {with("/loss", "0.5"), "m.jsonl:2: 'loss' must be a number or null, got \"0.5\""},
      {with("/step", 1.5), "m.jsonl:2: 'step' must be a whole number of at least 0, got 1.5"},
      {with("/step", -1), "m.jsonl:2: 'step' must be a whole number of at least 0, got -1"},
      {with("/step", uint64_t{1} << 63), "m.jsonl:2: 'step' must be a whole number of at most 2^63 - 1"},
      {with("/step", nullptr), "m.jsonl:2: 'step' must be"},
      {with("/layers", 1), "m.jsonl:2: 'layers' must be an array, got 1"},
      {with("/layers/0", 1), "m.jsonl:2: 'layers[0]' must be an object, got 1"},
      {with("/layers/0/name", 1), "m.jsonl:2: 'layers[0].name' must be a string"},
      {with("/layers/0/r", 1), "m.jsonl:2: 'layers[0].r' must be an object"},
      {with("/layers/0/d/max", "x"), "m.jsonl:2: 'layers[0].d.max' must be a number or null"},
      {without("accuracy"), "m.jsonl:2: 'accuracy' is missing"},
      {good + R"({"kind":"step","kind":"step"})" + "\n", "m.jsonl:2: 'kind' is given twice"},
      {good + std::string(1000000, '[') + "\n", "m.jsonl:2: nested deeper"},
  };
  for (const auto& [text, part] : cases) {
    expect_error<DataError>(part, [&text = text] { parse_metrics(text, "m.jsonl"); });
  }
}

TEST(Metrics, SummaryHasAColumnAField) {
  EvaluationRecord evaluation{500, 2.5, "test", 4000, {71.25, 1.5}, {70.0, 1.75}, 3.5, {}};
  StepRecord step;
  step.loss = 1.25;
  step.accuracy = 65.5;
  step.learning_rate = 1e-8;
  step.images_per_second = 1000.0;
  EXPECT_EQ(summary_csv_header(),
            "step,epoch,split,images,accuracy,loss,raw_accuracy,raw_loss,train_accuracy,train_loss,"
            "learning_rate,gradient_norm,r_max,d_max,r_clipped_above,r_clipped_below,d_clipped,"
            "images_per_second,seconds");
  EXPECT_EQ(summary_csv_row(evaluation, step),
            "500,2.5,test,4000,71.25,1.5,70,1.75,65.5,1.25,1e-08,0,1,0,0,0,0,1000,3.5");
}

TEST(Metrics, SummaryQuotesTextThatNeedsIt) {
  EvaluationRecord evaluation;
  evaluation.split = "a,\"b\"";
  EXPECT_EQ(summary_csv_row(evaluation, {}).find("0,0,\"a,\"\"b\"\"\",0,"), 0u);
}

}  // namespace
}  // namespace renorm::record
