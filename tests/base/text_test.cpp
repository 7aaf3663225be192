#include "base/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/errors.h"
#include "base/random.h"
#include "temporary_folder.h"

namespace renorm::testing {
namespace {

using Strings = std::vector<std::string>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

TEST(Text, SplitsAtSeparators) {
  EXPECT_EQ(split("", ','), (Strings{""}));
  EXPECT_EQ(split("a", ','), (Strings{"a"}));
  EXPECT_EQ(split("a,,b,", ','), (Strings{"a", "", "b", ""}));
}

TEST(Text, SplitsSpecsAtTheFirstColon) {
  EXPECT_EQ(split_spec("mnist:DIR"), std::pair(std::string("mnist"), std::string("DIR")));
  EXPECT_EQ(split_spec("mnist:C:/x"), std::pair(std::string("mnist"), std::string("C:/x")));
  EXPECT_EQ(split_spec("strokes"), std::pair(std::string("strokes"), std::string("")));
}

TEST(Text, ReadsIntegers) {
  EXPECT_EQ(parse_integer("9", "x", 1, 9), 9);
  EXPECT_EQ(parse_integer("-5", "x", -5, 9), -5);
  EXPECT_EQ(parse_integer("007", "x", 1, 9), 7);
  EXPECT_EQ(parse_integer("9223372036854775807", "x", kMin, kMax), kMax);
  EXPECT_EQ(parse_integer("-9223372036854775808", "x", kMin, kMax), kMin);
}

TEST(Text, RefusesWhatIsNoInteger) {
  for (const std::string text :
       {"", " 1", "1 ", "+1", "1.0", "1e3", "0x1", "one", "--1", "9223372036854775808", "0", "10", "-1"}) {
    expect_error<UsageError>("--steps must be a whole number from 1 to 9, got '" + text + "'",
                             [&] { parse_integer(text, "--steps", 1, 9); });
  }
  expect_error<UsageError>("x must be a whole number of at least 1, got '0'",
                           [] { parse_integer("0", "x", 1, kMax); });
  expect_error<UsageError>("x must be a whole number of at most 1, got '2'",
                           [] { parse_integer("2", "x", kMin, 1); });
  expect_error<UsageError>("x must be a whole number, got 'a'", [] { parse_integer("a", "x", kMin, kMax); });
  expect_error<UsageError>("got '1\\x00'", [] { parse_integer(std::string("1\0", 2), "x", 1, 9); });
}

TEST(Text, ReadsNumbers) {
  EXPECT_EQ(parse_number("0.1", "x", 0.0, 1.0), 0.1);
  EXPECT_EQ(parse_number("1e-08", "x", 0.0, 1.0), 1e-8);
  EXPECT_EQ(parse_number("-2", "x", -3.0, 1.0), -2.0);
  EXPECT_EQ(parse_number("inf", "x", 0.0, kInfinity), kInfinity);
  EXPECT_EQ(parse_number("-inf", "x", -kInfinity, kInfinity), -kInfinity);
}

TEST(Text, RefusesWhatIsNoNumber) {
  for (const std::string text : {"", " 0.5", "0.5 ", "+0.5", "0,5", "0x1p-1", "nan", "NaN", "nan(1)", "INF",
                                 "infinity", "inf", "1e999", "0.5x", "1e", "1.5", "-0.1"}) {
    expect_error<UsageError>("--lr must be a number from 0 to 1, got '" + text + "'",
                             [&] { parse_number(text, "--lr", 0.0, 1.0); });
  }
  for (const std::string text : {"INF", "infinity", "nan", "-nan"}) {
    expect_error<UsageError>("x must be a number, got '" + text + "'",
                             [&] { parse_number(text, "x", -kInfinity, kInfinity); });
  }
  expect_error<UsageError>("x must be a number of at least 0.5, got '0'",
                           [] { parse_number("0", "x", 0.5, kInfinity); });
}

TEST(Text, ReadsOptionsInOrder) {
  using Options = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(parse_options("b=1,a=2", "x"), (Options{{"b", "1"}, {"a", "2"}}));
  EXPECT_EQ(parse_options("a=b=c,d=", "x"), (Options{{"a", "b=c"}, {"d", ""}}));
  EXPECT_EQ(parse_options("", "x"), Options{});
}

TEST(Text, RefusesBadOptions) {
  for (const std::string text : {"a", "a=1,", ",a=1", "=1", "a=1,,b=2", "a=1,b"}) {
    expect_error<UsageError>("strokes: options must be NAME=VALUE", [&] { parse_options(text, "strokes"); });
  }
  expect_error<UsageError>("strokes: 'a' is given twice", [] { parse_options("a=1,b=2,a=1", "strokes"); });
}

TEST(Text, ShortestReadsBackTheSame) {
  EXPECT_EQ(shortest(0.1), "0.1");
  EXPECT_EQ(shortest(1e-8), "1e-08");
  EXPECT_EQ(shortest(3.0), "3");
  EXPECT_EQ(shortest(100000.0), "100000");
  EXPECT_EQ(shortest(kInfinity), "inf");
  EXPECT_EQ(shortest(-kInfinity), "-inf");
  EXPECT_EQ(shortest(std::nan("")), "nan");
  EXPECT_EQ(shortest(-std::nan("")), "nan");
  RandomStream stream(1, Purpose::kModel);
  for (int i = 0; i < 100000; ++i) {
    const uint64_t bits = stream.bits();
    double value = 0.0;
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isnormal(value)) continue;
    ASSERT_EQ(parse_number(shortest(value), "x", -kInfinity, kInfinity), value);
  }
}

TEST(Text, PrintableKeepsOrdinaryText) {
  EXPECT_EQ(printable("a/b c.txt"), "a/b c.txt");
  EXPECT_EQ(printable("Müller 漢字 😀"), "Müller 漢字 😀");
  EXPECT_EQ(printable(""), "");
}

TEST(Text, PrintableEscapesWhatDisturbsATerminal) {
  EXPECT_EQ(printable("a\nb\x1b[31m\x7f"), "a\\x0ab\\x1b[31m\\x7f");
  EXPECT_EQ(printable(std::string("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");           // a control character of two bytes
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // writes from right to left from here on
  EXPECT_EQ(printable("\xe2\x80\xa8"), "\\xe2\\x80\\xa8");  // a line separator
}

TEST(Text, PrintableEscapesWhatIsNotUtf8) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xc3"), "\\xc3");                             // cut short
  EXPECT_EQ(printable("\xc0\x8a"), "\\xc0\\x8a");                    // a newline in two bytes
  EXPECT_EQ(printable("\xe0\x80\x8a"), "\\xe0\\x80\\x8a");           // and in three
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // half a surrogate pair
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond the last character
  EXPECT_EQ(printable("a\x80z"), "a\\x80z");
}

TEST(Text, PrintableLeavesOutTheMiddleOfLongText) {
  const std::string cut = printable("begin" + std::string(1000000, 'x') + "end");
  EXPECT_LT(cut.size(), 320u);
  EXPECT_EQ(cut.substr(0, 5), "begin");
  EXPECT_EQ(cut.substr(cut.size() - 3), "end");
  EXPECT_NE(cut.find(" ... "), std::string::npos);
  EXPECT_EQ(printable(std::string(300, 'x')), std::string(300, 'x'));
  for (size_t shift = 0; shift < 3; ++shift) {  // no character is cut in two
    std::string text(shift, 'x');
    for (int i = 0; i < 1000; ++i) text += "漢";
    EXPECT_EQ(printable(text).find("\\x"), std::string::npos);
  }
}

const std::vector<std::string> kSamplers = {"iid", "labels", "blocks"};

TEST(Names, FindsTheNearest) {
  EXPECT_EQ(nearest_name("lables", kSamplers), "labels");
  EXPECT_EQ(nearest_name("block", kSamplers), "blocks");
  EXPECT_EQ(nearest_name("iid", kSamplers), "iid");
  EXPECT_EQ(nearest_name("ab", {"ac", "ad"}), "ac");  // the first of equals
}

TEST(Names, FindsNothingWhenMoreThanHalfWouldChange) {
  EXPECT_EQ(nearest_name("xyz", kSamplers), "");
  EXPECT_EQ(nearest_name("", kSamplers), "");
  EXPECT_EQ(nearest_name("iid", {}), "");
}

TEST(Names, IsNotSlowedDownByAHugeWord) {
  std::string word;
  word.resize(10000000, 'i');
  EXPECT_EQ(nearest_name(word, std::vector<std::string>(1000, "iid")), "");
}

TEST(Names, HintNamesTheNearestOrAll) {
  EXPECT_EQ(name_hint("idd", kSamplers), "; did you mean 'iid'?");
  EXPECT_EQ(name_hint("random", kSamplers), "; there are iid, labels, blocks");
  EXPECT_EQ(name_hint("random", {"iid"}), "; there is only iid");
  EXPECT_EQ(name_hint("random", {}), "");
}

TEST(Utf8, ReadsCharactersOfEveryLength) {
  for (const auto& [text, code] :
       std::vector<std::pair<std::string, uint32_t>>{{"a", 0x61},
                                                     {"\xc2\x80", 0x80},
                                                     {"\xe0\xa0\x80", 0x800},
                                                     {"\xef\xbf\xbd", 0xfffd},
                                                     {"\xf0\x90\x80\x80", 0x10000},
                                                     {"\xf4\x8f\xbf\xbf", 0x10ffff}}) {
    const Character character = character_at("x" + text + "y", 1);
    EXPECT_TRUE(character.valid);
    EXPECT_EQ(character.code, code);
    EXPECT_EQ(character.length, text.size());
  }
}

TEST(Utf8, CountsWhatCouldHaveStartedACharacterAsOne) {
  for (const auto& [text, length] : std::vector<std::pair<std::string, size_t>>{{"\x80", 1},
                                                                                {"\xc0\xbc", 1},
                                                                                {"\xe2\x80", 2},
                                                                                {"\xe2\x80z", 2},
                                                                                {"\xf0\x90\x80", 3},
                                                                                {"\xed\xa0\x80", 1}}) {
    const Character character = character_at(text, 0);
    EXPECT_FALSE(character.valid);
    EXPECT_EQ(character.length, length);
  }
}

TEST(Utf8, WritesWhatItReads) {
  for (const uint32_t code :
       {0x0u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xd7ffu, 0xe000u, 0xffffu, 0x10000u, 0x10ffffu}) {
    std::string text;
    EXPECT_TRUE(append_utf8(code, &text));
    const Character character = character_at(text, 0);
    EXPECT_TRUE(character.valid);
    EXPECT_EQ(character.code, code);
    EXPECT_EQ(character.length, text.size());
  }
  std::string text = "a";
  for (const uint32_t code : {0xd800u, 0xdfffu, 0x110000u}) EXPECT_FALSE(append_utf8(code, &text));
  EXPECT_EQ(text, "a");
}

TEST(Utf8, DistinguishesTextFromBytes) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("Müller 漢字 😀"));
  EXPECT_TRUE(is_utf8(std::string("a\0b", 3)));
  EXPECT_FALSE(is_utf8("a\xff"));
  EXPECT_FALSE(is_utf8("\xc3"));
}

}  // namespace
}  // namespace renorm::testing
