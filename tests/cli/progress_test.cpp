#include "cli/progress.h"

#include <gtest/gtest.h>

namespace renorm::cli {
namespace {

const std::vector<ProgressField> kFields = {{"step", "10/200", 0},
                                            {"images/s", "950", 4},
                                            {"loss", "2.3026", 1},
                                            {"lr", "0.003", 5},
                                            {"", "9 s left", 3}};

TEST(FitFields, KeepsAllInOrderWhenThereIsRoom) {
  EXPECT_EQ(fit_fields(kFields, 100, false), "step 10/200  images/s 950  loss 2.3026  lr 0.003  9 s left");
}

TEST(FitFields, KeepsAllWhenTheyFitExactly) {
  const std::string all = fit_fields(kFields, 100, false);
  EXPECT_EQ(fit_fields(kFields, static_cast<int>(all.size()), false), all);
  EXPECT_LT(fit_fields(kFields, static_cast<int>(all.size()) - 1, false).size(), all.size());
}

TEST(FitFields, DropsTheLeastImportantFirst) {
  EXPECT_EQ(fit_fields(kFields, 50, false), "step 10/200  images/s 950  loss 2.3026  9 s left");
  EXPECT_EQ(fit_fields(kFields, 40, false), "step 10/200  loss 2.3026  9 s left");
  EXPECT_EQ(fit_fields(kFields, 30, false), "step 10/200  loss 2.3026");
}

TEST(FitFields, NeverDropsTheLastOne) {
  EXPECT_EQ(fit_fields(kFields, 3, false), "step 10/200");
  EXPECT_EQ(fit_fields(kFields, -5, false), "step 10/200");
}

TEST(FitFields, OfEqualsDropsTheRightOne) {
  EXPECT_EQ(fit_fields({{"a", "1", 2}, {"b", "2", 2}}, 4, false), "a 1");
}

TEST(FitFields, ColourTakesNoRoom) {
  const std::string coloured = fit_fields(kFields, 50, true);
  EXPECT_NE(coloured.find("\033[2mloss\033[0m 2.3026"), std::string::npos) << coloured;
  EXPECT_NE(coloured.find("images/s"), std::string::npos) << coloured;
}

TEST(CutToColumns, CutsPlainText) {
  EXPECT_EQ(cut_to_columns("abcdef", 4), "abcd");
  EXPECT_EQ(cut_to_columns("abc", 4), "abc");
  EXPECT_EQ(cut_to_columns("abc", 0), "");
}

TEST(CutToColumns, KeepsColourSequencesWhole) {
  EXPECT_EQ(cut_to_columns("\033[2mab\033[0mcd", 3), "\033[2mab\033[0mc");
  EXPECT_EQ(cut_to_columns("\033[2mabc\033[0m", 1), "\033[2ma\033[0m");
  EXPECT_EQ(cut_to_columns("a\033[", 5), "a\033[");
}

TEST(CutToColumns, CountsCharactersNotBytes) {
  EXPECT_EQ(cut_to_columns("\u00e4\u00f6\u00fcx", 2), "\u00e4\u00f6");
}

}  // namespace
}  // namespace renorm::cli
