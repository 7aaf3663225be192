#include "data/decode_share.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "data/image_decode.h"
#include "data/parallel.h"
#include "image_files.h"

namespace renorm::data::testing {
namespace {

constexpr auto kMoment = std::chrono::milliseconds(100);

// The largest number of threads that had a share of `bytes` at the same time.
int most_at_once(int64_t bytes) {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  for_each_number(12, 4, [&](int64_t) {
    const DecodeShare share(bytes);
    const int now = ++inside;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --inside;
  });
  return most;
}

TEST(DecodeShare, LargeImagesShareTheBudget) {
  EXPECT_LE(most_at_once(kDecodeBudget / 2), 2);
  EXPECT_EQ(most_at_once(kDecodeBudget / 2 + 1), 1);
}

TEST(DecodeShare, AnImageAboveTheBudgetIsAlone) { EXPECT_EQ(most_at_once(3 * kDecodeBudget), 1); }

// This thread would wait without end otherwise.
TEST(DecodeShare, SmallImagesNeverWait) {
  const DecodeShare all(kDecodeBudget);
  const DecodeShare small(kUncountedBytes);
}

TEST(DecodeShare, IsReturnedOnceAlsoAfterAMove) {
  DecodeShare all(kDecodeBudget);
  DecodeShare moved(std::move(all));
  all = std::move(moved);
  moved = DecodeShare();
  auto other = std::async(std::launch::async, [] { const DecodeShare next(kDecodeBudget); });
  EXPECT_EQ(other.wait_for(kMoment), std::future_status::timeout);
  all = DecodeShare();
  other.get();
}

bool waits_for_budget(const std::string& bytes) {
  DecodeShare all(kDecodeBudget);
  auto other = std::async(std::launch::async, [&] { decode_image(bytes, "pic", {}); });
  const bool waited = other.wait_for(kMoment) == std::future_status::timeout;
  all = DecodeShare();
  other.get();
  return waited;
}

// Of all that is held at once. A pixel of a decoded image takes 3 bytes, its coefficients of a JPEG 6.
TEST(DecodeShare, IsTakenForWhatDecodingNeeds) {
  const Image small = blank_image(2000, 1000, 3);
  const Image large = blank_image(3000, 2000, 3);
  JpegFile turned;
  turned.orientation = 3;
  JpegFile progressive;
  progressive.progressive = true;
  EXPECT_TRUE(waits_for_budget(png_file(large)));
  EXPECT_TRUE(waits_for_budget(png_file(blank_image(1'000'000, 1, 3))));  // the rows that libpng keeps
  EXPECT_TRUE(waits_for_budget(jpeg_file(large)));
  EXPECT_TRUE(waits_for_budget(jpeg_file(small, progressive)));
  EXPECT_TRUE(waits_for_budget(jpeg_file(blank_image(2000, 1500, 3), turned)));
  const DecodeShare all(kDecodeBudget);
  decode_image(png_file(small), "pic", {});
  decode_image(jpeg_file(small, turned), "pic", {});
  DecodeLimits limits;
  limits.wanted_side = 10;
  decode_image(jpeg_file(large), "pic", limits);
  decode_image(jpeg_file(small, progressive), "pic", limits);
}

TEST(DecodeShare, LastsAsLongAsTheImage) {
  std::optional<DecodedImage> image = decode_image(png_file(blank_image(3000, 2000, 3)), "pic", {});
  auto other = std::async(std::launch::async, [] { const DecodeShare all(kDecodeBudget); });
  EXPECT_EQ(other.wait_for(kMoment), std::future_status::timeout);
  image.reset();
  other.get();
}

}  // namespace
}  // namespace renorm::data::testing
