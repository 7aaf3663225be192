#include "base/table.h"

#include <gtest/gtest.h>

namespace renorm {
namespace {

TEST(AlignedTable, PutsTheFirstColumnLeftAndTheOthersRight) {
  EXPECT_EQ(aligned_table({{"arm", "test %"}, {"iid-renorm", "9.5"}}),
            "arm         test %\n"
            "iid-renorm     9.5\n");
}

TEST(AlignedTable, HasNoBlanksAtTheEndOfALine) {
  EXPECT_EQ(aligned_table({{"a", "long"}, {"b", ""}, {"", ""}}, 2), "a  long\nb\n\n");
}

TEST(AlignedTable, CountsCharactersNotBytes) {
  EXPECT_EQ(aligned_table({{"\xc3\xa4", "1"}, {"ab", "2"}}), "\xc3\xa4   1\nab  2\n");
}

TEST(AlignedTable, IsEmptyWithoutRows) { EXPECT_EQ(aligned_table({}), ""); }

}  // namespace
}  // namespace renorm
