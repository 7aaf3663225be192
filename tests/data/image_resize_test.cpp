#include "data/image_resize.h"

#include <cmath>

#include "image_files.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

// The definition: every output value is a weighted mean over all of the source.
Image plain_resize(const Image& source, const Box& box, ImageSize size) {
  const double step_x = box.width / static_cast<double>(size.width);
  const double step_y = box.height / static_cast<double>(size.height);
  const double reach_x = std::max(1.0, step_x), reach_y = std::max(1.0, step_y);
  Image resized = blank_image(size.width, size.height, source.channels);
  for (int64_t v = 0; v < size.height; ++v) {
    for (int64_t u = 0; u < size.width; ++u) {
      std::vector<double> sums(static_cast<size_t>(source.channels), 0.0);
      double total = 0.0;
      for (int64_t y = 0; y < source.height; ++y) {
        const double down = static_cast<double>(y) + 0.5 - box.top - (static_cast<double>(v) + 0.5) * step_y;
        for (int64_t x = 0; x < source.width; ++x) {
          const double across =
              static_cast<double>(x) + 0.5 - box.left - (static_cast<double>(u) + 0.5) * step_x;
          const double weight = triangle(across / reach_x) * triangle(down / reach_y);
          total += weight;
          for (size_t c = 0; c < sums.size(); ++c) {
            sums[c] += weight * source.row(y)[x * source.channels + static_cast<int64_t>(c)];
          }
        }
      }
      for (size_t c = 0; c < sums.size(); ++c) {
        resized.row(v)[u * source.channels + static_cast<int64_t>(c)] =
            static_cast<uint8_t>(std::lround(sums[c] / total));
      }
    }
  }
  return resized;
}

TEST(Resize, AgreesWithTheDefinition) {
  struct Case {
    ImageSize source;
    Box box;
    ImageSize size;
  };
  const std::vector<Case> cases = {
      {{40, 30}, {0, 0, 40, 30}, {20, 15}},
      {{41, 31}, {0, 0, 41, 31}, {17, 23}},
      {{40, 30}, {3.25, 4.5, 20.5, 11.75}, {16, 16}},
      {{40, 30}, {35.5, 25.25, 4.5, 4.75}, {16, 16}},
      {{7, 5}, {0, 0, 7, 5}, {33, 29}},
      {{7, 5}, {2.5, 1.5, 0.25, 0.25}, {5, 5}},
      {{1, 1}, {0, 0, 1, 1}, {4, 4}},
      {{64, 64}, {0, 0, 64, 64}, {1, 1}},
      {{100, 3}, {0, 0, 100, 3}, {8, 8}},
      {{3, 100}, {0.5, 10, 2, 80}, {8, 8}},
      {{33, 17}, {-2, -1, 37, 19}, {9, 9}},
  };
  for (const Case& one : cases) {
    for (const int64_t channels : {int64_t{1}, int64_t{3}}) {
      const Image source = noisy_image(one.source.width, one.source.height, channels, 5);
      EXPECT_LE(difference(resize(source, one.box, one.size), plain_resize(source, one.box, one.size)), 1)
          << one.source.width << "x" << one.source.height << " " << one.box.left << " to " << one.size.width;
    }
  }
}

TEST(Resize, SameSizeIsTheSameImage) {
  const Image source = noisy_image(19, 23, 3, 6);
  EXPECT_EQ(difference(resize(source, whole({19, 23}), {19, 23}), source), 0);
}

TEST(Resize, WholePixelsAreCutOut) {
  const Image source = noisy_image(12, 10, 3, 7);
  const Image part = resize(source, {3, 2, 5, 4}, {5, 4});
  for (int64_t y = 0; y < 4; ++y) {
    EXPECT_TRUE(std::equal(part.row(y), part.row(y) + part.row_bytes(), source.row(y + 2) + 9)) << y;
  }
}

TEST(Resize, OneColourStaysThatColour) {
  for (const int value : {0, 1, 127, 254, 255}) {
    Image source = blank_image(301, 199, 3);
    std::fill(source.pixels.begin(), source.pixels.end(), static_cast<uint8_t>(value));
    for (const ImageSize size : {ImageSize{32, 32}, ImageSize{299, 299}, ImageSize{400, 7}}) {
      const Image resized = resize(source, {10.3, 5.7, 250.1, 180.9}, size);
      for (const uint8_t pixel : resized.pixels) ASSERT_EQ(pixel, value);
    }
  }
}

TEST(Resize, FineStripesBecomeGreyInsteadOfCoarseStripes) {
  Image source = blank_image(200, 200, 1);
  for (size_t i = 0; i < source.pixels.size(); ++i) source.pixels[i] = i % 2 == 0 ? 0 : 254;
  const Image resized = resize(source, whole({200, 200}), {33, 33});
  for (const uint8_t pixel : resized.pixels) EXPECT_NEAR(pixel, 127, 8);
}

}  // namespace
}  // namespace renorm::data::testing
