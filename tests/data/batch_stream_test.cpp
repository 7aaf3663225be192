#include "data/batch_stream.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace renorm::data {
namespace {

// Example i is an image of the value i.
class Numbers : public Split {
 public:
  explicit Numbers(bool slow) : slow_(slow) {}
  const std::vector<int64_t>& labels() const override { return labels_; }
  int64_t pixels() const override { return 1; }
  bool is_slow() const override { return slow_; }
  Batch load(const std::vector<Draw>& draws) const override {
    ++loads;
    loader = std::this_thread::get_id();
    std::vector<int64_t> indices;
    for (const Draw& draw : draws) indices.push_back(draw.index);
    if (indices.front() == fail_at) throw std::runtime_error("from the split");
    const torch::Tensor values = torch::tensor(indices, torch::kLong);
    return {values.to(torch::kFloat).view({-1, 1, 1, 1}), values};
  }
  mutable std::atomic<int> loads{0};
  mutable std::atomic<std::thread::id> loader;
  int64_t fail_at = -1;

 private:
  bool slow_;
  std::vector<int64_t> labels_ = std::vector<int64_t>(100, 0);
};

// `count` batches of two examples.
NextDraws pairs(int64_t count) {
  return [count, next = int64_t{0}]() mutable {
    std::vector<Draw> draws;
    if (next < 2 * count) draws = {{next, 0}, {next + 1, 0}};
    next += 2;
    return draws;
  };
}

std::vector<int64_t> first_labels(BatchStream& stream) {
  std::vector<int64_t> labels;
  while (const auto drawn = stream.next()) {
    EXPECT_EQ(drawn->draws.front().index, drawn->batch.labels[0].item<int64_t>());
    labels.push_back(drawn->batch.labels[0].item<int64_t>());
  }
  return labels;
}

void wait_for_loads(const Numbers& split, int loads) {
  for (int i = 0; i < 2000 && split.loads < loads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(BatchStreamTest, GivesTheSameBatchesInOrderLoadedAheadOrNot) {
  for (const bool slow : {false, true}) {
    const Numbers split(slow);
    BatchStream stream(split, pairs(5));
    EXPECT_EQ(first_labels(stream), (std::vector<int64_t>{0, 2, 4, 6, 8}));
    EXPECT_FALSE(stream.next().has_value());
    EXPECT_EQ(split.loader.load() == std::this_thread::get_id(), !slow);
  }
}

TEST(BatchStreamTest, LoadsASlowSplitAheadButNotWithoutBound) {
  const Numbers split(true);
  BatchStream stream(split, pairs(50));
  ASSERT_TRUE(stream.next().has_value());
  const int max = 1 + static_cast<int>(BatchStream::kAhead);
  wait_for_loads(split, max);
  EXPECT_EQ(split.loads, max);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(split.loads, max);
}

TEST(BatchStreamTest, ThrowsWhatLoadingThrewInItsTurn) {
  for (const bool slow : {false, true}) {
    Numbers split(slow);
    split.fail_at = 2;
    BatchStream stream(split, pairs(5));
    EXPECT_EQ(stream.next()->batch.labels[0].item<int64_t>(), 0);
    EXPECT_THROW(stream.next(), std::runtime_error);
  }
}

TEST(BatchStreamTest, CanBeLeftBeforeItsEnd) {
  const Numbers split(true);
  {
    BatchStream stream(split, pairs(50));
    stream.next();
  }
  EXPECT_LE(split.loads, 3);
}

TEST(BatchStreamTest, OfNothingEndsAtOnce) {
  const Numbers split(true);
  BatchStream stream(split, pairs(0));
  EXPECT_FALSE(stream.next().has_value());
}

}  // namespace
}  // namespace renorm::data
