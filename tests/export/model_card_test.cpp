#include "export/model_card.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/errors.h"

namespace renorm::exporting {
namespace {

using nlohmann::json;

ModelCard sample() {
  ModelCard card;
  card.renorm = "0.1.0";
  card.model = "convnet:8/2,16";
  card.folded = true;
  card.norm = {train::NormKind::kNative, true, 0.001};
  card.weights = "averaged";
  card.step = 2000;
  card.input = {3, 64, 48, {0.485, 0.456, 0.406}, {0.1 + 0.2, 1.0 / 3.0, 0.225}, 0.875};
  card.classes = {"cat", "d\"o\ng", "\xc3\xa9l\xc3\xa9phant", ""};
  return card;
}

std::string refusal(const std::string& text) {
  try {
    parse_model_card(text, "FILE");
  } catch (const DataError& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown for " << text.substr(0, 200);
  return "";
}

// The sample with one thing changed must be refused with all `parts`, in one sentence that starts with the
// file.
void expect_refused(const std::function<void(json&)>& change, const std::vector<std::string>& parts) {
  json object = json::parse(to_json(sample()));
  change(object);
  const std::string message = refusal(object.dump());
  EXPECT_EQ(message.rfind("FILE: ", 0), 0U) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(ModelCard, ComesBackAsItWas) {
  const ModelCard card = parse_model_card(to_json(sample()), "FILE");
  EXPECT_EQ(card.renorm, "0.1.0");
  EXPECT_EQ(card.model, "convnet:8/2,16");
  EXPECT_TRUE(card.folded);
  EXPECT_EQ(card.norm.kind, train::NormKind::kNative);
  EXPECT_TRUE(card.norm.scale);
  EXPECT_EQ(card.norm.eps, 0.001);
  EXPECT_EQ(card.weights, "averaged");
  EXPECT_EQ(card.step, 2000);
  EXPECT_EQ(card.input.channels, 3);
  EXPECT_EQ(card.input.height, 64);
  EXPECT_EQ(card.input.width, 48);
  EXPECT_EQ(card.input.mean, sample().input.mean);
  EXPECT_EQ(card.input.std, sample().input.std);
  EXPECT_EQ(card.input.centre, 0.875);
  EXPECT_EQ(card.classes, sample().classes);
  EXPECT_EQ(to_json(card), to_json(sample()));
}

TEST(ModelCard, WritesNamesThatAreNotUtf8SoThatTheyCanBeRead) {
  ModelCard card = sample();
  card.classes = {"\xff\xfe", "b"};
  const ModelCard read = parse_model_card(to_json(card), "FILE");
  EXPECT_EQ(read.classes.size(), 2U);
  EXPECT_EQ(read.classes[1], "b");
}

TEST(ModelCard, OfAnotherVersionIsRefused) {
  expect_refused([](json& card) { card["format_version"] = 2; }, {"format_version", "2", "1"});
  expect_refused([](json& card) { card["format_version"] = 0; }, {"format_version"});
  expect_refused([](json& card) { card["format_version"] = "1"; }, {"format_version"});
}

TEST(ModelCard, WithEntriesMissingOrUnknownIsRefused) {
  const json whole = json::parse(to_json(sample()));
  for (const auto& [name, value] : whole.items()) {
    expect_refused([key = name](json& card) { card.erase(key); }, {name, "missing"});
  }
  for (const auto& [name, value] : whole["input"].items()) {
    expect_refused([key = name](json& card) { card["input"].erase(key); }, {"input." + name, "missing"});
  }
  expect_refused([](json& card) { card["colour"] = 1; }, {"colour"});
  expect_refused([](json& card) { card["norm"]["col\nour"] = 1; }, {"col\\x0aour"});
}

TEST(ModelCard, WithValuesOfAnotherKindOrOutOfRangeIsRefused) {
  expect_refused([](json& card) { card["model"] = 3; }, {"model"});
  expect_refused([](json& card) { card["model"] = ""; }, {"model"});
  expect_refused([](json& card) { card["model"] = std::string(100000, 'x'); }, {"model", "100000"});
  expect_refused([](json& card) { card["folded"] = 1; }, {"folded"});
  expect_refused([](json& card) { card["norm"] = nullptr; }, {"norm"});
  expect_refused([](json& card) { card["norm"]["kind"] = "layer"; }, {"norm.kind", "layer", "renorm"});
  expect_refused([](json& card) { card["norm"]["eps"] = 0; }, {"norm.eps"});
  expect_refused([](json& card) { card["norm"]["eps"] = nullptr; }, {"norm.eps"});
  expect_refused([](json& card) { card["weights"] = "good"; }, {"weights", "averaged"});
  expect_refused([](json& card) { card["step"] = -1; }, {"step"});
  expect_refused([](json& card) { card["input"]["channels"] = 0; }, {"input.channels"});
  expect_refused([](json& card) { card["input"]["height"] = 65537; }, {"input.height"});
  expect_refused([](json& card) { card["input"]["height"] = 4097; }, {"input.height", "4096"});
  expect_refused([](json& card) { card["input"]["width"] = 65536; }, {"input.width", "4096"});
  expect_refused([](json& card) { card["input"]["width"] = 1.5; }, {"input.width"});
  expect_refused(
      [](json& card) {
        card["input"]["channels"] = 20000;
        card["input"]["height"] = 4096;
      },
      {"input.channels", "at most 50331648 values"});
  expect_refused([](json& card) { card["input"]["mean"].push_back(0); }, {"input.mean", "3 values", "4"});
  expect_refused([](json& card) { card["input"]["std"][1] = 0; }, {"input.std"});
  expect_refused([](json& card) { card["input"]["mean"][1] = nullptr; }, {"input.mean"});
  expect_refused([](json& card) { card["input"]["centre"] = 1.01; }, {"input.centre"});
  expect_refused([](json& card) { card["classes"] = json::array(); }, {"classes"});
  expect_refused([](json& card) { card["classes"][1] = 7; }, {"classes[1]"});
}

TEST(ModelCard, ThatIsNoJsonObjectIsRefused) {
  const std::string whole = to_json(sample());
  for (const std::string& text : {std::string(), std::string("[]"), std::string("7"), whole.substr(0, 100),
                                  whole + "x", std::string(100, '['), std::string("{\"a\":1,\"a\":2}")}) {
    EXPECT_EQ(refusal(text).rfind("FILE: ", 0), 0U);
  }
  EXPECT_NE(refusal(std::string((64 << 20) + 1, ' ')).find("bytes"), std::string::npos);
}

}  // namespace
}  // namespace renorm::exporting
