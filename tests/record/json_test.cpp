#include "record/json.h"

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
  EXPECT_TRUE(parse_json(nested(kMaxJsonDepth), "x").is_array());
}

TEST(StrictJson, RefusesBadText) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "x:1: not valid JSON: parse error at line 1, column 1"},
      {"{", "not valid JSON"},
      {"{} {}", "not valid JSON"},
      {"{'a': 1}", "not valid JSON"},
      {"nan", "not valid JSON"},
      {"1e999", "not valid JSON"},
      {"\"\xff\"", "not valid JSON"},
      {std::string("{}\0{", 4), "a zero byte"},
      {R"({"a": 1, "b": 2, "a": 1})", "x:1: 'a' is given twice in one object"},
      {R"([{"b": {"a": 1, "a": 1}}])", "'a' is given twice"},
      {nested(kMaxJsonDepth + 1), "nested deeper than 32 levels"},
      {nested(1000000), "nested deeper"},
      {std::string(1000000, '['), "nested deeper"},
  };
  for (const auto& [text, part] : cases) {
    expect_error<DataError>(part, [&text = text] { parse_json(text, "x:1"); });
  }
}

TEST(StrictJson, StopsAtLimitsOfMemory) {
  const std::string nested = "[[1, 2], {\"a\": 1, \"b\": 2}]";
  JsonLimits limits;
  limits.max_entries = limits.max_array = limits.max_names = limits.max_depth = 2;
  limits.max_name_bytes = 1;
  limits.max_values = 7;
  EXPECT_EQ(parse_json(nested, "x", limits).size(), 2u);
  const auto refused = [&limits](const std::string& part, const std::string& text) {
    expect_error<DataError>(part, [&] { parse_json(text, "x", limits); });
  };
  refused("x: an array has more than 2 entries", "[1, 2, 3]");
  refused("x: nested deeper than 2 levels", "[[[]]]");
  refused("x: a name has more than 1 bytes", R"({"ab": 1})");
  limits.max_names = 3;
  refused("x: an object has more than 2 entries", R"({"a": 1, "b": 2, "c": 3})");
  limits.max_entries = 4;
  refused("x: more than 3 names", R"({"a": 1, "b": 2, "c": 3, "d": 4})");
  limits.max_values = 6;
  refused("x: more than 6 values", nested);
}

struct Inner {
  double number = 0.0;
  std::optional<int64_t> count;
  bool flag = true;
};
struct Outer {
  std::vector<Inner> list;
  std::optional<std::string> text;
};

}  // namespace

template <>
struct Fields<Inner> {
  template <typename Record, typename Visitor>
  static void visit(Record& inner, const Visitor& visit) {
    visit("number", inner.number, Limits{0.0, 1.0});
    visit("count", inner.count, Limits<int64_t>{1, 9});
    visit.defaulted("flag", inner.flag);
  }
};

template <>
struct Fields<Outer> {
  template <typename Record, typename Visitor>
  static void visit(Record& outer, const Visitor& visit) {
    visit("list", outer.list);
    visit.require(outer.list.size() < 3, "list", "must be short");
    visit.nullable("text", outer.text);
  }
};

namespace {

constexpr JsonFormat kFormat = {"a sample", 3, 1000, UnknownKeys::kRefuse, -1};

std::string problem_of(const std::string& text) {
  try {
    read_json<Outer>(text, "FILE", kFormat);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(JsonRecord, ComesBackAsItWas) {
  const Outer outer = {{{0.5, 3, false}, {1.0, std::nullopt, true}}, std::nullopt};
  const std::string text = write_json(outer, kFormat);
  EXPECT_EQ(
      text,
      R"({"format_version":3,"list":[{"number":0.5,"count":3,"flag":false},{"number":1.0,"flag":true}],"text":null})");
  EXPECT_EQ(write_json(read_json<Outer>(text, "FILE", kFormat), kFormat), text);
}

TEST(JsonRecord, KeepsDefaultsOfOlderFiles) {
  const Outer outer =
      read_json<Outer>(R"({"format_version": 3, "list": [{"number": 1}], "text": ""})", "FILE", kFormat);
  EXPECT_TRUE(outer.list[0].flag);
  EXPECT_EQ(outer.list[0].count, std::nullopt);
}

TEST(JsonRecord, NamesThePlaceOfWhatIsWrong) {
  const auto with_list = [](const std::string& list) {
    return problem_of(R"({"format_version": 3, "text": "", "list": )" + list + "}");
  };
  EXPECT_EQ(with_list("[]"), "");
  EXPECT_EQ(with_list("1"), "FILE: 'list' must be an array, got 1");
  EXPECT_EQ(with_list("[{}]"), "FILE: 'list[0].number' is missing");
  EXPECT_EQ(with_list(R"([{"number": 1.5}])"),
            "FILE: 'list[0].number' must be a number from 0 to 1, got 1.5");
  EXPECT_EQ(with_list(R"([{"number": null}])"),
            "FILE: 'list[0].number' must be a number from 0 to 1, got null");
  EXPECT_EQ(with_list(R"([{"number": 1, "count": 0}])"),
            "FILE: 'list[0].count' must be a whole number from 1 to 9, got 0");
  EXPECT_EQ(with_list(R"([{"number": 1, "count": 9223372036854775808}])"),
            "FILE: 'list[0].count' must be a whole number of at most 2^63 - 1, got 9223372036854775808");
  EXPECT_EQ(with_list(R"([{"number": 1, "counts": 1}])"),
            "FILE: unknown entry 'list[0].counts'; did you mean 'count'?");
  EXPECT_EQ(with_list(R"([{"number": 1}, {"number": 1}, {"number": 1}])"), "FILE: 'list' must be short");
}

TEST(JsonRecord, RefusesAnotherFormat) {
  EXPECT_EQ(problem_of("[]"), "FILE: a sample must be a JSON object");
  EXPECT_EQ(problem_of("{}"), "FILE: 'format_version' is missing");
  EXPECT_EQ(problem_of(R"({"format_version": 4})"),
            "FILE: 'format_version' must be 3, got 4; use a newer renorm");
  EXPECT_EQ(problem_of(R"({"format_version": 2})"),
            "FILE: 'format_version' must be 3, got 2; use the renorm that wrote it");
  EXPECT_EQ(problem_of(R"({"format_version": "3"})"),
            "FILE: 'format_version' must be 3, got \"3\"; use the renorm that wrote it");
  EXPECT_EQ(problem_of(std::string(1001, ' ')), "FILE: a sample may have at most 1000 bytes, got 1001");
}

}  // namespace
}  // namespace renorm::record
