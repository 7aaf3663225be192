#include "data/image_transform.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "image_files.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

RandomStream stream_of(uint64_t index) { return {11, Purpose::kAugment, index}; }

TEST(TrainingBox, LiesInTheImageWithinAreaAndRatio) {
  const ImageSize original{640, 427};
  const TransformOptions options;
  double min_area = 1.0, max_area = 0.0, min_ratio = 9.0, max_ratio = 0.0;
  for (uint64_t i = 0; i < 2000; ++i) {
    RandomStream stream = stream_of(i);
    const Box box = training_box(original, options, stream);
    EXPECT_GE(box.left, 0.0);
    EXPECT_GE(box.top, 0.0);
    EXPECT_LE(box.left + box.width, 640.0 + 1e-9);
    EXPECT_LE(box.top + box.height, 427.0 + 1e-9);
    const double area = box.width * box.height / (640.0 * 427.0);
    min_area = std::min(min_area, area);
    max_area = std::max(max_area, area);
    min_ratio = std::min(min_ratio, box.width / box.height);
    max_ratio = std::max(max_ratio, box.width / box.height);
  }
  EXPECT_GE(min_area, 0.08 - 1e-9);
  EXPECT_LT(min_area, 0.09);
  EXPECT_GT(max_area, 0.75);
  EXPECT_LE(max_area, 1.0);
  EXPECT_GE(min_ratio, 0.75 - 1e-9);
  EXPECT_LT(min_ratio, 0.76);
  EXPECT_GT(max_ratio, 1.32);
  EXPECT_LE(max_ratio, 4.0 / 3.0 + 1e-9);
}

TEST(TrainingBox, ThatCannotFitIsTheCentreAtTheNearestRatio) {
  TransformOptions options;
  options.min_area = 0.9;
  RandomStream stream = stream_of(0);
  const Box wide = training_box({1000, 90}, options, stream);
  EXPECT_DOUBLE_EQ(wide.height, 90.0);
  EXPECT_DOUBLE_EQ(wide.width, 120.0);
  EXPECT_DOUBLE_EQ(wide.left, 440.0);
  const Box tall = training_box({90, 1000}, options, stream);
  EXPECT_DOUBLE_EQ(tall.width, 90.0);
  EXPECT_DOUBLE_EQ(tall.height, 120.0);
  EXPECT_DOUBLE_EQ(tall.top, 440.0);
  options.min_area = 1.0;
  const Box all = training_box({100, 100}, options, stream);
  EXPECT_LE(all.width * all.height, 100.0 * 100.0 * (1 + 1e-9));
  EXPECT_GE(std::max(all.width, all.height), 99.9);
}

TEST(EvaluationBox, IsTheCentreOfTheShorterSide) {
  const Box box = evaluation_box({400, 200}, {});
  EXPECT_DOUBLE_EQ(box.width, 175.0);
  EXPECT_DOUBLE_EQ(box.height, 175.0);
  EXPECT_DOUBLE_EQ(box.left, 112.5);
  EXPECT_DOUBLE_EQ(box.top, 12.5);
}

TEST(EvaluationImage, IsResizedThenCut) {
  const Image original = smooth_image(512, 256);
  TransformOptions options;
  options.size = 56;
  const Image seen = evaluation_image(png_file(original), "pic", options);
  const Image small = resize(original, whole({512, 256}), {128, 64});
  ASSERT_EQ(seen.width, 56);
  ASSERT_EQ(seen.height, 56);
  for (int64_t y = 0; y < 56; ++y) {
    const uint8_t* expected = small.row(y + 4) + 36 * small.channels;
    for (int64_t i = 0; i < seen.row_bytes(); ++i) EXPECT_NEAR(seen.row(y)[i], expected[i], 1);
  }
}

// Decoding at a smaller scale is for speed; it must not change the image.
TEST(EvaluationImage, OfALargeJpegLooksLikeThatOfThePng) {
  const Image original = smooth_image(1000, 777);
  TransformOptions options;
  options.size = 64;
  const Image png = evaluation_image(png_file(original), "pic", options);
  const Image jpeg = evaluation_image(jpeg_file(original), "pic", options);
  EXPECT_LE(difference(png, jpeg), 4);
}

TEST(TrainingImage, DependsOnTheStreamAlone) {
  const std::string file = jpeg_file(smooth_image(300, 200));
  TransformOptions options;
  options.size = 48;
  const auto draw = [&](uint64_t index) {
    RandomStream stream = stream_of(index);
    return training_image(file, "pic", options, stream);
  };
  const Image first = draw(1);
  EXPECT_EQ(first.width, 48);
  EXPECT_EQ(first.height, 48);
  EXPECT_EQ(first.channels, 3);
  EXPECT_EQ(draw(1).pixels, first.pixels);
  EXPECT_NE(draw(2).pixels, first.pixels);
}

// The file's first channel grows from left to right.
TEST(TrainingImage, IsMirroredAsOftenAsRequested) {
  const std::string file = png_file(smooth_image(64, 64));
  TransformOptions options;
  options.size = 8;
  options.jitter = {0.0, 0.0, 0.0};
  for (const double often : {0.0, 0.5, 1.0}) {
    options.flip = often;
    int mirrored = 0;
    for (uint64_t i = 0; i < 400; ++i) {
      RandomStream stream = stream_of(i);
      const Image image = training_image(file, "pic", options, stream);
      mirrored += image.pixels[0] > image.pixels[21] ? 1 : 0;
    }
    EXPECT_NEAR(mirrored, 400 * often, 40 * (often == 0.5 ? 1 : 0));
  }
}

TEST(TrainingImage, OfOnePixelIsThatPixel) {
  TransformOptions options;
  options.size = 5;
  options.jitter = {0.0, 0.0, 0.0};
  RandomStream stream = stream_of(3);
  const Image image = training_image(png_file(1, 1, "\x01\x02\x03"), "pic", options, stream);
  ASSERT_EQ(image.pixels.size(), 75U);
  EXPECT_EQ(std::vector<uint8_t>(image.pixels.end() - 3, image.pixels.end()),
            (std::vector<uint8_t>{1, 2, 3}));
}

TEST(TrainingImage, BadFilesAreNamed) {
  RandomStream stream = stream_of(0);
  expect_error<DataError>([&] { training_image("text", "pic", {}, stream); }, {"'pic': not a JPEG or PNG"});
  expect_error<DataError>([&] { evaluation_image(png_header(9, 9), "pic", {}); }, {"'pic': the PNG"});
}

TEST(Flip, MirrorsEveryRow) {
  Image image = noisy_image(5, 3, 3, 8);
  const Image before = image;
  flip(&image);
  for (int64_t y = 0; y < 3; ++y) {
    for (int64_t x = 0; x < 5; ++x) {
      for (int64_t c = 0; c < 3; ++c) EXPECT_EQ(image.row(y)[3 * x + c], before.row(y)[3 * (4 - x) + c]);
    }
  }
  flip(&image);
  EXPECT_EQ(image.pixels, before.pixels);
}

TEST(ChangeColours, FollowsTheFormulas) {
  const Image before{2, 1, 3, {100, 50, 200, 40, 40, 40}};
  const auto changed = [&](const ColourFactors& factors) {
    Image image = before;
    change_colours(factors, &image);
    return image.pixels;
  };
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(changed({}), before.pixels);
  EXPECT_EQ(changed({0.5, 1.0, 1.0}), (Bytes{50, 25, 100, 20, 20, 20}));
  EXPECT_EQ(changed({2.0, 1.0, 1.0}), (Bytes{200, 100, 255, 80, 80, 80}));
  // Greys: 82.05 and 40, their mean 61.025.
  EXPECT_EQ(changed({1.0, 0.0, 1.0}), (Bytes{61, 61, 61, 61, 61, 61}));
  EXPECT_EQ(changed({1.0, 2.0, 1.0}), (Bytes{139, 39, 255, 19, 19, 19}));
  EXPECT_EQ(changed({1.0, 1.0, 0.0}), (Bytes{82, 82, 82, 40, 40, 40}));
  EXPECT_EQ(changed({1.0, 1.0, 2.0}), (Bytes{118, 18, 255, 40, 40, 40}));
  EXPECT_EQ(changed({0.5, 0.0, 1.0}), (Bytes{31, 31, 31, 31, 31, 31}));
}

TEST(DrawFactors, StayInTheirRangesAndFillThem) {
  double min = 9.0, max = 0.0;
  for (uint64_t i = 0; i < 1000; ++i) {
    RandomStream stream = stream_of(i);
    const ColourFactors factors = draw_factors({0.4, 0.0, 1.5}, stream);
    min = std::min(min, factors.brightness);
    max = std::max(max, factors.brightness);
    EXPECT_EQ(factors.contrast, 1.0);
    EXPECT_GE(factors.saturation, 0.0);
    EXPECT_LE(factors.saturation, 2.5);
  }
  EXPECT_GE(min, 0.6);
  EXPECT_LT(min, 0.61);
  EXPECT_LE(max, 1.4);
  EXPECT_GT(max, 1.39);
}

}  // namespace
}  // namespace renorm::data::testing
