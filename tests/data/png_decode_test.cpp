#include "base/errors.h"
#include "data/image_decode.h"
#include "image_files.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

Image decode(const std::string& bytes) { return decode_image(bytes, "pic", {}).image; }

void expect_pixel(const Image& image, int64_t x, int64_t y, std::vector<int> expected) {
  ASSERT_EQ(image.channels, 3);
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_EQ(image.row(y)[x * 3 + static_cast<int64_t>(c)], expected[c]) << "at " << x << ", " << y;
  }
}

TEST(PngDecode, EveryDepthOfGreyIsScaledToBytes) {
  for (const bool interlaced : {false, true}) {
    PngFile kind;
    kind.colour_type = 0;
    kind.interlaced = interlaced;
    kind.depth = 1;
    expect_pixel(decode(png_file(2, 1, "\x40", kind)), 1, 0, {255, 255, 255});
    kind.depth = 2;
    expect_pixel(decode(png_file(2, 1, "\x60", kind)), 0, 0, {85, 85, 85});
    kind.depth = 4;
    expect_pixel(decode(png_file(2, 1, "\x3c", kind)), 1, 0, {204, 204, 204});
    kind.depth = 8;
    expect_pixel(decode(png_file(2, 1, "\x11\x99", kind)), 1, 0, {0x99, 0x99, 0x99});
    kind.depth = 16;
    const Image deep = decode(png_file(2, 1, "\x01\xff\x80\xff", kind));
    expect_pixel(deep, 0, 0, {2, 2, 2});        // 511 / 257 = 1.99
    expect_pixel(deep, 1, 0, {128, 128, 128});  // 33023 / 257 = 128.49
  }
}

TEST(PngDecode, ColoursAreKeptExactly) {
  const Image original = noisy_image(13, 7, 3, 2);
  const std::string samples(original.pixels.begin(), original.pixels.end());
  PngFile kind;
  EXPECT_EQ(difference(decode(png_file(13, 7, samples, kind)), original), 0);
  kind.interlaced = true;
  EXPECT_EQ(difference(decode(png_file(13, 7, samples, kind)), original), 0);
  kind.depth = 16;
  std::string deep;
  for (const char sample : samples) deep += std::string(2, sample);
  EXPECT_EQ(difference(decode(png_file(13, 7, deep, kind)), original), 0);
}

TEST(PngDecode, PaletteIsLookedUp) {
  for (const int depth : {1, 2, 4, 8}) {
    PngFile kind;
    kind.colour_type = 3;
    kind.depth = depth;
    // One pixel, the palette's last entry.
    const int last = (1 << depth) - 1;
    const Image image = decode(png_file(1, 1, "\xff", kind));
    expect_pixel(image, 0, 0, {last, 255 - last, last / 2});
  }
}

TEST(PngDecode, AlphaIsMixedWithWhite) {
  PngFile kind;
  kind.colour_type = 6;
  const std::string samples("\x0a\x14\x1e\xff\x0a\x14\x1e\x00\x00\x64\xff\x33", 12);
  for (const bool interlaced : {false, true}) {
    kind.interlaced = interlaced;
    const Image image = decode(png_file(3, 1, samples, kind));
    expect_pixel(image, 0, 0, {10, 20, 30});
    expect_pixel(image, 1, 0, {255, 255, 255});
    expect_pixel(image, 2, 0, {204, 224, 255});  // a fifth of the colour
  }
  kind.colour_type = 4;
  expect_pixel(decode(png_file(1, 1, "\x64\x33", kind)), 0, 0, {224, 224, 224});
  kind.depth = 16;
  expect_pixel(decode(png_file(1, 1, "\x64\x64\x33\x33", kind)), 0, 0, {224, 224, 224});
}

TEST(PngDecode, TransparentColourAndEntryBecomeWhite) {
  PngFile kind;
  kind.transparent = 7;
  Image image = decode(png_file(2, 1, "\x07\x07\x07\x07\x07\x08", kind));
  expect_pixel(image, 0, 0, {255, 255, 255});
  expect_pixel(image, 1, 0, {7, 7, 8});
  kind.colour_type = 0;
  image = decode(png_file(2, 1, "\x07\x08", kind));
  expect_pixel(image, 0, 0, {255, 255, 255});
  expect_pixel(image, 1, 0, {8, 8, 8});
  kind.colour_type = 3;
  image = decode(png_file(2, 1, "\x07\x08", kind));
  expect_pixel(image, 0, 0, {255, 255, 255});
  expect_pixel(image, 1, 0, {8, 247, 4});
}

TEST(PngDecode, DamagedAndShortFilesAreRefused) {
  const std::string file = png_file(noisy_image(20, 20, 3, 3));
  for (const size_t cut : {size_t{8}, size_t{20}, size_t{33}, size_t{60}, file.size() / 2}) {
    expect_error<DataError>([&] { decode(file.substr(0, cut)); }, {"'pic': the PNG ends too early"});
  }
  std::string altered = file;
  altered[file.size() / 2] ^= 1;
  expect_error<DataError>([&] { decode(altered); }, {"'pic': the PNG cannot be read ("});
  altered = file;
  altered[24] = 3;  // a depth that does not exist
  expect_error<DataError>([&] { decode(altered); }, {"'pic': the PNG cannot be read ("});
  // Nothing is lost with what follows the pixels.
  EXPECT_EQ(difference(decode(file.substr(0, file.size() - 12)), noisy_image(20, 20, 3, 3)), 0);
}

// libpng allocates the stated length of an EXIF chunk before it reads the chunk. The seed png_exif_too_long
// of the fuzz target shows that nothing is allocated.
TEST(PngDecode, ChunkLongerThanTheFileIsRefused) {
  PngFile kind;
  kind.orientation = 1;
  std::string file = png_file(1, 1, "\x01\x02\x03", kind);
  file[file.find("eXIf") - 4] = '\x5d';
  expect_error<DataError>([&] { decode(file); }, {"'pic': the PNG ends too early"});
}

}  // namespace
}  // namespace renorm::data::testing
