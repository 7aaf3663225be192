#include "base/choice.h"

#include <gtest/gtest.h>

namespace renorm::testing {
enum class Fruit { kApple, kPear, kPlum };
}  // namespace renorm::testing

template <>
struct renorm::Choices<renorm::testing::Fruit> {
  static constexpr const char* kWhat = "fruit";
  static constexpr Choice<testing::Fruit> kAll[] = {{testing::Fruit::kApple, "apple"},
                                                    {testing::Fruit::kPear, "pear", "when ripe"},
                                                    {testing::Fruit::kPlum, "plum"}};
};

namespace renorm::testing {
namespace {

std::string refusal_of(const std::string& text) {
  try {
    parse_choice<Fruit>(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Choice, ReadsBackEveryName) {
  for (const std::string& name : choice_names<Fruit>()) EXPECT_EQ(name_of(parse_choice<Fruit>(name)), name);
}

TEST(Choice, NamesTheNearestOrAll) {
  EXPECT_EQ(refusal_of("pearl"), "unknown fruit 'pearl'; did you mean 'pear'?");
  EXPECT_EQ(refusal_of("kiwi\n"), "unknown fruit 'kiwi\\x0a'; there are apple, pear, plum");
}

TEST(Choice, ListsNamesWithTheirHelp) { EXPECT_EQ(choice_help<Fruit>(), "apple, pear (when ripe) or plum"); }

}  // namespace
}  // namespace renorm::testing
