#include "train/run_state.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "base/errors.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

using Json = nlohmann::ordered_json;

RunState example() {
  RunState state;
  state.run = "0123456789abcdef";
  state.step = 500;
  state.config.data = "mnist:/a \"b\"";
  state.config.seed = 9'007'199'254'740'993;  // no double
  state.config.lr = 0.1 + 0.2;
  state.config.norm_scale = true;
  state.config = resolved(state.config, 1'000);
  state.versions = {{"libtorch", "1.13.1"}, {"renorm", "0.1.0"}};
  state.best_accuracy = 100.0 / 3.0;
  state.best_step = 400;
  state.metrics_bytes = 12'345;
  state.summary_bytes = 678;
  state.seconds = 1e-3;
  state.parameters = 1'000'000'007;
  state.data = {"mnist:/a", {"zero", "on\"e"}, 1, 28, 27, {0.1}, {0.3}, 0.875, "abc"};
  state.skipped_images = 3;
  state.unevaluated.emplace();
  state.unevaluated->step = 500;
  state.unevaluated->loss = 0.1 + 0.2;
  state.last_evaluation.emplace();
  state.last_evaluation->step = 400;
  state.last_evaluation->split = "test";
  state.last_evaluation->raw = {100.0 / 3.0, std::numeric_limits<double>::quiet_NaN()};
  return state;
}

std::string refusal_of(const std::string& text) {
  try {
    parse_run_state(text, "a/state.json");
  } catch (const DataError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("a/state.json: ", 0), 0U) << error.what();
    return error.what();
  }
  return "";
}

// The example with one value replaced, or removed if `value` is discarded.
std::string refusal_with(const std::string& pointer, const Json& value) {
  Json json = Json::parse(to_json(example()));
  json[Json::json_pointer(pointer)] = value;
  return refusal_of(json.dump());
}

TEST(RunStateFile, ReadsBackWhatItWrote) {
  const RunState state = example();
  const RunState again = parse_run_state(to_json(state), "f");
  EXPECT_EQ(again.run, state.run);
  EXPECT_EQ(again.step, state.step);
  EXPECT_EQ(again.versions, state.versions);
  EXPECT_EQ(again.best_accuracy, state.best_accuracy);
  EXPECT_EQ(again.best_step, state.best_step);
  EXPECT_EQ(again.metrics_bytes, state.metrics_bytes);
  EXPECT_EQ(again.summary_bytes, state.summary_bytes);
  EXPECT_EQ(again.seconds, state.seconds);
  EXPECT_EQ(again.parameters, state.parameters);
  EXPECT_EQ(again.data.classes, state.data.classes);
  EXPECT_EQ(again.data.width, state.data.width);
  EXPECT_EQ(again.skipped_images, 3);
  ASSERT_TRUE(again.unevaluated);
  EXPECT_EQ(again.unevaluated->step, 500);
  EXPECT_EQ(again.unevaluated->loss, 0.1 + 0.2);
  ASSERT_TRUE(again.last_evaluation);
  EXPECT_EQ(again.last_evaluation->step, 400);
  EXPECT_EQ(again.last_evaluation->raw.accuracy, 100.0 / 3.0);
  for (const Setting& setting : settings()) EXPECT_EQ(setting.get(again.config), setting.get(state.config));
  EXPECT_EQ(to_json(again), to_json(state));
}

TEST(RunStateFile, HasNoBestBeforeTheFirstEvaluation) {
  RunState state = example();
  state.best_step = -1;
  state.best_accuracy = -1.0;
  EXPECT_TRUE(Json::parse(to_json(state))["best"].is_null());
  EXPECT_EQ(parse_run_state(to_json(state), "f").best_step, -1);
  EXPECT_EQ(parse_run_state(to_json(state), "f").best_accuracy, -1.0);
}

TEST(RunStateFile, HoldsTypedSettingsAndTheStateOfSamplerAndRandomNumbers) {
  const Json json = Json::parse(to_json(example()));
  EXPECT_EQ(json["config"]["data"], "mnist:/a \"b\"");
  EXPECT_EQ(json["config"]["norm-scale"], true);
  EXPECT_EQ(json["config"]["minibatch"], 32);
  EXPECT_EQ(json["config"].size(), settings().size());
  EXPECT_EQ(json["sampler"], (Json{{"seed", 9'007'199'254'740'993}, {"step", 500}}));
  EXPECT_EQ(json["rng"], (Json{{"seed", 9'007'199'254'740'993}}));
}

TEST(RunStateFile, RefusesAnotherFormat) {
  EXPECT_EQ(refusal_with("/format_version", 3),
            "a/state.json: 'format_version' must be 2, got 3; use a newer renorm");
  EXPECT_EQ(refusal_with("/format_version", 1),
            "a/state.json: 'format_version' must be 2, got 1; use the renorm that wrote it");
  EXPECT_NE(refusal_with("/format_version", 0), "");
  EXPECT_NE(refusal_with("/format_version", "2"), "");
}

TEST(RunStateFile, RefusesADescriptionOfDataThatNoModelFits) {
  EXPECT_EQ(refusal_with("/data/classes", Json::array()), "a/state.json: 'data.classes' must not be empty");
  EXPECT_EQ(refusal_with("/data/mean", {0.1, 0.2}), "a/state.json: 'data.mean' must have 1 values, got 2");
  EXPECT_NE(refusal_with("/data/std", {0.0}), "");
  EXPECT_NE(refusal_with("/data/classes/1", 7), "");
  EXPECT_NE(refusal_with("/data/height", 0), "");
  EXPECT_NE(refusal_with("/data/height", 4097), "");
  EXPECT_NE(refusal_with("/data/width", 65536), "");
  EXPECT_NE(refusal_with("/data/centre", 1.5), "");
  RunState large = example();
  large.data.channels = 60;
  large.data.height = 4096;
  large.data.width = 4096;
  large.data.mean.assign(60, 0.5);
  large.data.std.assign(60, 0.5);
  EXPECT_EQ(refusal_of(to_json(large)),
            "a/state.json: 'data.channels' must give images of at most 50331648 values, got 1006632960");
}

// Readers of data escape such names. Whatever a name is, the run must be saved.
TEST(RunStateFile, ReplacesBytesOfClassNamesThatAreNoText) {
  RunState state = example();
  state.data.classes[0] = "caf\xe9";
  EXPECT_EQ(parse_run_state(to_json(state), "f").data.classes[0], "caf\xef\xbf\xbd");
}

TEST(RunStateFile, RefusesWrongTypesAndRanges) {
  EXPECT_EQ(refusal_with("/step", -1), "a/state.json: 'step' must be a whole number of at least 0, got -1");
  for (const char* entry : {"/step", "/metrics_bytes", "/summary_bytes", "/parameters"}) {
    for (const Json& value : {Json(-1), Json(1.5), Json("1"), Json(nullptr), Json(true), Json::array(),
                              Json(uint64_t{1} << 63)}) {
      EXPECT_NE(refusal_with(entry, value), "") << entry << value;
    }
  }
  for (const Json& value : {Json(-0.5), Json("1"), Json(nullptr), Json(1e13)}) {
    EXPECT_NE(refusal_with("/seconds", value), "") << value;
  }
  EXPECT_EQ(refusal_with("/best/step", 501),
            "a/state.json: 'best.step' must be a whole number from 0 to 500");
  EXPECT_EQ(refusal_with("/run", "0123"), "a/state.json: 'run' must be 16 hexadecimal digits");
  EXPECT_NE(refusal_with("/run", 1), "");
  EXPECT_NE(refusal_with("/best/accuracy", 100.5), "");
  EXPECT_NE(refusal_with("/best", 1), "");
  EXPECT_NE(refusal_with("/versions/renorm", 1), "");
  EXPECT_NE(refusal_with("/versions", Json::array()), "");
  EXPECT_NE(refusal_with("/config", Json::array()), "");
}

TEST(RunStateFile, RefusesSettingsThatDoNotExistOrMakeNoSense) {
  EXPECT_EQ(refusal_with("/config/weight_decay", 0),
            "a/state.json: unknown entry 'config.weight_decay'; did you mean 'weight-decay'?");
  EXPECT_NE(refusal_with("/config/lr", "0.1"), "");
  EXPECT_NE(refusal_with("/config/lr", -0.1), "");
  EXPECT_NE(refusal_with("/config/steps", 1.0), "");
  EXPECT_NE(refusal_with("/config/deal", 1), "");
  EXPECT_NE(refusal_with("/config/data", 1), "");
  EXPECT_NE(refusal_with("/config/microbatch", 5), "");
}

TEST(RunStateFile, GivesSettingsNewerThanTheFileTheirDefault) {
  Json json = Json::parse(to_json(example()));
  json["config"].erase("weight-decay");
  EXPECT_EQ(parse_run_state(json.dump(), "f").config.weight_decay, Config().weight_decay);
}

TEST(RunStateFile, RefusesEntriesThatAreMissingUnknownOrContradictory) {
  const Json whole = Json::parse(to_json(example()));
  for (const auto& [name, value] : whole.items()) {
    Json json = whole;
    json.erase(name);
    // Older versions did not write them, and a state without them is complete.
    if (name == "last_evaluation" || name == "run" || name == "unevaluated") {
      const RunState state = parse_run_state(json.dump(), "f");
      EXPECT_EQ(state.last_evaluation.has_value(), name != "last_evaluation");
      EXPECT_EQ(state.run.has_value(), name != "run");
      EXPECT_EQ(state.unevaluated.has_value(), name != "unevaluated");
      continue;
    }
    EXPECT_NE(refusal_of(json.dump()).find("'" + name + "'"), std::string::npos) << name;
  }
  EXPECT_EQ(refusal_with("/more", 1), "a/state.json: unknown entry 'more'");
  EXPECT_NE(refusal_with("/sampler/step", 499), "");
  EXPECT_NE(refusal_with("/sampler/seed", 2), "");
  EXPECT_NE(refusal_with("/rng/seed", 2), "");
}

TEST(RunStateFile, RefusesKeysGivenTwice) {
  std::string text = to_json(example());
  text.insert(text.find("\"step\""), "\"step\": 500,\n");
  EXPECT_EQ(refusal_of(text), "a/state.json: 'step' is given twice in one object");
  text = to_json(example());
  text.insert(text.find("\"lr\""), "\"lr\": 1,\n");
  EXPECT_EQ(refusal_of(text), "a/state.json: 'lr' is given twice in one object");
}

TEST(RunStateFile, RefusesWhatIsNotJson) {
  const std::string text = to_json(example());
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    ASSERT_NE(refusal_of(text.substr(0, length)), "") << length;
  }
  const std::string refusal = refusal_of("{\"step\": x}");
  EXPECT_EQ(refusal.find("a/state.json: not valid JSON: "), 0U) << refusal;
  EXPECT_NE(refusal.find("column 10"), std::string::npos) << refusal;
  EXPECT_NE(refusal_of(std::string("{}\0x", 4)).find("zero byte"), std::string::npos);
  EXPECT_NE(refusal_of(text + "{}"), "");
  EXPECT_NE(refusal_of("{\"a\": \"\xff\"}"), "");
  EXPECT_NE(refusal_of("{\"step\": 1e999}"), "");
  EXPECT_NE(refusal_of("[]"), "");
  EXPECT_NE(refusal_of("3"), "");
}

TEST(RunStateFile, SurvivesBombs) {
  EXPECT_NE(refusal_of(std::string(500'000, '[')).find("nested deeper"), std::string::npos);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_NE(refusal_of(objects).find("nested deeper"), std::string::npos);
  EXPECT_NE(refusal_of(std::string((64 << 20) + 1, ' ')).find("may have at most 67108864 bytes"),
            std::string::npos);
}

}  // namespace
}  // namespace renorm::train
