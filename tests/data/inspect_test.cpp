#include "data/inspect.h"

#include <gtest/gtest.h>

namespace renorm::data {
namespace {

ByteImages pairs(std::vector<int64_t> labels, std::vector<uint8_t> pixels) {
  return {1, 1, 2, std::move(pixels), std::move(labels)};
}

TEST(Inspect, FindsNothingInAGoodSet) {
  const Inspection found =
      inspect({"good", {"a", "b"}, pairs({0, 1}, {1, 2, 3, 4}), pairs({1, 0}, {5, 6, 7, 8})});
  EXPECT_TRUE(found.faults.empty());
  EXPECT_TRUE(found.notes.empty());
}

TEST(Inspect, NamesEmptyClassesAndConstantImages) {
  const Inspection found =
      inspect({"bad", {"a", "b\n", "c"}, pairs({0, 2}, {1, 2, 3, 3}), pairs({0, 1}, {9, 9, 4, 5})});
  ASSERT_EQ(found.faults.size(), 3U);
  EXPECT_EQ(found.faults[0], "1 class without training images: b\\x0a");
  EXPECT_EQ(found.faults[1], "1 training image of a single value, by number: 1");
  EXPECT_EQ(found.faults[2], "1 test image of a single value, by number: 0");
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_EQ(found.notes[0], "1 class without test images: c");
}

TEST(Inspect, NotesTestImagesSeenInTraining) {
  const Inspection found = inspect({"seen", {"a"}, pairs({0, 0}, {1, 2, 3, 4}), pairs({0, 0}, {2, 1, 3, 4})});
  EXPECT_TRUE(found.faults.empty());
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_EQ(found.notes[0], "1 test image found in training too, by number: 1");
}

TEST(Inspect, LongListsAreCut) {
  const std::vector<std::string> classes(20, "empty");
  const Inspection found = inspect({"many", classes, pairs({0}, {1, 2}), pairs({0}, {3, 4})});
  ASSERT_EQ(found.faults.size(), 1U);
  EXPECT_EQ(found.faults[0],
            "19 classes without training images: empty, empty, empty, empty, empty and 14 more");
}

}  // namespace
}  // namespace renorm::data
