#include "data/byte_images.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace renorm::data {
namespace {

constexpr double kTolerance = 4 * std::numeric_limits<double>::epsilon();

TEST(ChannelMoments, AreThoseOfEachChannel) {
  ByteImages images;
  images.channels = 2;
  images.height = 1;
  images.width = 2;
  images.labels = {0, 1};
  images.pixels = {0, 10, 255, 255, 20, 30, 0, 0};
  const ChannelMoments moments = channel_moments(images);
  ASSERT_EQ(moments.mean.size(), 2U);
  EXPECT_NEAR(moments.mean[0], 15.0 / 255, kTolerance);
  EXPECT_NEAR(moments.std[0], std::sqrt(125.0) / 255, kTolerance);
  EXPECT_NEAR(moments.mean[1], 0.5, kTolerance);
  EXPECT_NEAR(moments.std[1], 0.5, kTolerance);
}

TEST(ChannelMoments, StandardDeviationIsAtLeastOneByte) {
  ByteImages images;
  images.channels = images.height = images.width = 1;
  images.labels = {0, 0};
  images.pixels = {7, 7};
  EXPECT_EQ(channel_moments(images).std[0], 1.0 / 255);
  images.labels.clear();
  images.pixels.clear();
  EXPECT_EQ(channel_moments(images).std[0], 1.0 / 255);
}

}  // namespace
}  // namespace renorm::data
