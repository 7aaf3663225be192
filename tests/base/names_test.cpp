#include "base/names.h"

#include <gtest/gtest.h>

namespace renorm::testing {
namespace {

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

}  // namespace
}  // namespace renorm::testing
