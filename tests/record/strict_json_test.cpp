#include "record/strict_json.h"

#include <gtest/gtest.h>

#include "base/errors.h"
#include "temporary_folder.h"

namespace renorm::record {
namespace {

using renorm::testing::expect_error;

std::string nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(StrictJson, ReadsValues) {
  EXPECT_EQ(parse_json(R"({"a": [1, {"a": 2}], "b": {"a": 3}})", "x")["b"]["a"], 3);
  EXPECT_EQ(parse_json(R"([{"a": 1}, {"a": 2}])", "x").size(), 2u);
  EXPECT_EQ(parse_json(" 1 ", "x"), 1);
  EXPECT_TRUE(parse_json(nested(kDeepestJson), "x").is_array());
}

TEST(StrictJson, RefusesBadText) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "x:1: this is no valid JSON: parse error at line 1, column 1"},
      {"{", "no valid JSON"},
      {"{} {}", "no valid JSON"},
      {"{'a': 1}", "no valid JSON"},
      {"nan", "no valid JSON"},
      {"1e999", "no valid JSON"},
      {"\"\xff\"", "no valid JSON"},
      {std::string("{}\0{", 4), "a zero byte"},
      {R"({"a": 1, "b": 2, "a": 1})", "x:1: 'a' is given twice in one object"},
      {R"([{"b": {"a": 1, "a": 1}}])", "'a' is given twice"},
      {nested(kDeepestJson + 1), "nested deeper than the 32 levels"},
      {nested(1000000), "nested deeper"},
      {std::string(1000000, '['), "nested deeper"},
  };
  for (const auto& [text, part] : cases) {
    expect_error<DataError>(part, [&text = text] { parse_json(text, "x:1"); });
  }
}

}  // namespace
}  // namespace renorm::record
