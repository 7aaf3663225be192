#include "data/image_decode.h"

#include "base/errors.h"
#include "image_files.h"
#include "support.h"

namespace renorm::data::testing {
namespace {

// The error of quality 95 in a smooth image; chroma at half resolution adds to it at the edges.
constexpr int kJpegLevels = 5;
constexpr int kSubsampledLevels = 14;

Image decode(const std::string& bytes, const DecodeLimits& limits = {}) {
  return decode_image(bytes, "pic", limits).image;
}

TEST(JpegDecode, EveryColourSpaceAndCodingShowsTheImage) {
  const Image original = smooth_image(41, 29);
  for (const JpegColours colours :
       {JpegColours::kYcc, JpegColours::kRgb, JpegColours::kCmyk, JpegColours::kYcck}) {
    for (const bool progressive : {false, true}) {
      for (const bool subsampled : {false, true}) {
        JpegFile kind;
        kind.colours = colours;
        kind.progressive = progressive;
        kind.subsampled = subsampled && colours != JpegColours::kRgb && colours != JpegColours::kCmyk;
        EXPECT_LE(difference(decode(jpeg_file(original, kind)), original),
                  kind.subsampled ? kSubsampledLevels : kJpegLevels)
            << static_cast<int>(colours) << progressive << subsampled;
      }
    }
  }
}

TEST(JpegDecode, InksWithoutAdobeMarkerAreNotInverted) {
  const Image original = smooth_image(24, 17);
  JpegFile kind;
  kind.colours = JpegColours::kCmyk;
  kind.adobe = false;
  EXPECT_LE(difference(decode(jpeg_file(original, kind)), original), kJpegLevels);
}

TEST(JpegDecode, GreyBecomesThreeEqualChannels) {
  const Image original = smooth_image(30, 20, 1);
  JpegFile kind;
  kind.colours = JpegColours::kGrey;
  const Image decoded = decode(jpeg_file(original, kind));
  ASSERT_EQ(decoded.channels, 3);
  for (size_t i = 0; i < original.pixels.size(); ++i) {
    EXPECT_NEAR(decoded.pixels[3 * i], original.pixels[i], kJpegLevels);
    EXPECT_EQ(decoded.pixels[3 * i], decoded.pixels[3 * i + 1]);
    EXPECT_EQ(decoded.pixels[3 * i], decoded.pixels[3 * i + 2]);
  }
}

TEST(JpegDecode, ArithmeticCodingAndRestartMarkersAreRead) {
  const Image original = smooth_image(64, 48);
  JpegFile kind;
  kind.restart = 3;
  EXPECT_LE(difference(decode(jpeg_file(original, kind)), original), kJpegLevels);
  kind.arithmetic = true;
  EXPECT_LE(difference(decode(jpeg_file(original, kind)), original), kJpegLevels);
}

TEST(JpegDecode, OnlyAMissingEndMarkerIsForgiven) {
  const Image original = smooth_image(32, 32);
  const std::string file = jpeg_file(original);
  EXPECT_LE(difference(decode(file.substr(0, file.size() - 2)), original), kJpegLevels);
  for (const size_t cut : {size_t{3}, size_t{10}, size_t{100}, file.size() / 2, file.size() - 8}) {
    expect_error<DataError>([&] { decode(file.substr(0, cut)); }, {"'pic': the JPEG ends too early"});
  }
  JpegFile kind;
  kind.progressive = true;
  const std::string progressive = jpeg_file(original, kind);
  for (const size_t missing : {size_t{1}, size_t{2}, size_t{20}, progressive.size() / 2}) {
    expect_error<DataError>([&] { decode(progressive.substr(0, progressive.size() - missing)); },
                            {"'pic': the JPEG ends too early"});
  }
}

TEST(JpegDecode, DamagedDataAreRefused) {
  const std::string file = jpeg_file(noisy_image(64, 64, 3, 1));
  std::string ended = file;
  ended.replace(file.size() / 2, 2, "\xff\xd9");
  expect_error<DataError>([&] { decode(ended); }, {"'pic': the JPEG cannot be read", "premature end"});
  // No code has ones alone. Far from the end of a file the library does not look for such a code.
  std::string coded = jpeg_file(noisy_image(16, 16, 3, 1));
  for (size_t i = coded.size() - 60; i < coded.size() - 40; i += 2)
    coded.replace(i, 2, std::string("\xff\0", 2));
  expect_error<DataError>([&] { decode(coded); }, {"'pic': the JPEG cannot be read", "Huffman"});
  std::string lossless = file;
  lossless[file.find("\xff\xc0") + 1] = '\xc3';
  expect_error<DataError>([&] { decode(lossless); }, {"'pic': the JPEG cannot be read"});
}

TEST(JpegDecode, BytesBetweenMarkersAreNoDamage) {
  const Image original = smooth_image(16, 16);
  std::string file = jpeg_file(original);
  file.insert(file.size() - 2, "\x01\x02\x03");
  file += "something after the end";
  EXPECT_LE(difference(decode(file), original), kJpegLevels);
}

TEST(JpegDecode, TwoChannelsAreNamed) {
  JpegFile kind;
  kind.colours = JpegColours::kGrey;
  std::string file = jpeg_file(smooth_image(8, 8, 1), kind);
  // A frame and a scan of two components of the same tables.
  const size_t frame = file.find("\xff\xc0");
  file.replace(frame + 2, 2, std::string("\x00\x0e", 2));
  file[frame + 9] = 2;
  file.insert(frame + 13, std::string("\x02\x11\x00", 3));
  expect_error<DataError>([&] { decode(file); }, {"'pic': a JPEG of 2 channels, expected 1, 3 or 4"});
}

TEST(JpegDecode, SmallestFastScaleThatIsLargeEnoughIsUsed) {
  const std::string file = jpeg_file(smooth_image(400, 203));
  struct Case {
    int64_t wanted;
    int64_t width;
    int64_t height;
  };
  for (const Case& expected :
       {Case{0, 400, 203}, Case{1, 50, 26}, Case{26, 50, 26}, Case{27, 100, 51}, Case{51, 100, 51},
        Case{52, 200, 102}, Case{103, 400, 203}, Case{9999, 400, 203}}) {
    DecodeLimits limits;
    limits.wanted_side = expected.wanted;
    const Image decoded = decode(file, limits);
    EXPECT_EQ(decoded.width, expected.width) << expected.wanted;
    EXPECT_EQ(decoded.height, expected.height) << expected.wanted;
    EXPECT_LE(difference(decoded, smooth_image(decoded.width, decoded.height)), 2 * kJpegLevels);
  }
}

TEST(ImageDecode, EveryOrientationIsTurnedUpright) {
  const Image stored = smooth_image(24, 16);
  // The place of the stored image's top left corner: left or right, top or bottom.
  const struct {
    bool right;
    bool bottom;
  } corners[] = {{false, false}, {true, false}, {true, true}, {false, true},
                 {false, false}, {true, false}, {true, true}, {false, true}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    JpegFile kind;
    kind.orientation = orientation;
    const std::string file = jpeg_file(stored, kind);
    const Image turned = decode(file);
    const bool sideways = orientation >= 5;
    EXPECT_EQ(turned.width, sideways ? 16 : 24);
    EXPECT_EQ(turned.height, sideways ? 24 : 16);
    const ImageSize size = image_size(file, "pic", {});
    EXPECT_EQ(size.width, turned.width);
    EXPECT_EQ(size.height, turned.height);
    const auto& corner = corners[orientation - 1];
    const int64_t x = corner.right ? turned.width - 1 : 0;
    const int64_t y = corner.bottom ? turned.height - 1 : 0;
    for (int64_t c = 0; c < 3; ++c) EXPECT_NEAR(turned.row(y)[x * 3 + c], stored.pixels[c], kJpegLevels);
    // The stored image's first channel grows along its rows: down or up once it lies sideways.
    const int64_t far_x = sideways ? x : turned.width - 1 - x;
    const int64_t far_y = sideways ? turned.height - 1 - y : y;
    EXPECT_GT(turned.row(far_y)[far_x * 3], 200) << orientation;
  }
}

TEST(ImageDecode, PngIsTurnedUprightToo) {
  const Image stored = smooth_image(5, 3);
  PngFile kind;
  kind.orientation = 6;
  const std::string samples(stored.pixels.begin(), stored.pixels.end());
  const std::string file = png_file(5, 3, samples, kind);
  EXPECT_EQ(image_size(file, "pic", {}).width, 3);
  EXPECT_EQ(difference(decode(file), upright(stored, 6)), 0);
}

TEST(Exif, DamagedBlocksAreIgnored) {
  for (const bool little_endian : {false, true}) {
    const std::string good = exif_block(6, little_endian);
    const auto read = [](const std::string& block) {
      // Memory of exactly this size, for the sanitizer.
      const std::vector<uint8_t> bytes(block.begin(), block.end());
      return exif_orientation(bytes.data(), bytes.size());
    };
    EXPECT_EQ(read(good), 6);
    for (size_t size = 0; size < 34; ++size) EXPECT_EQ(read(good.substr(0, size)), 1) << size;
    EXPECT_EQ(read(exif_block(0, little_endian)), 1);
    EXPECT_EQ(read(exif_block(9, little_endian)), 1);
    std::string far = good;
    far.replace(4, 4, "\xff\xff\xff\xff");
    EXPECT_EQ(read(far), 1);
    std::string other = good;
    other[0] = 'X';
    EXPECT_EQ(read(other), 1);
  }
}

TEST(ImageDecode, OtherFilesAreNamed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "'pic': an empty file"},
      {"a text\n", "'pic': not a JPEG or PNG image"},
      {"\xff\xd8", "'pic': not a JPEG or PNG image"},
      {"\x89PNG\r\n", "'pic': not a JPEG or PNG image"},
      {"GIF89a....", "'pic': not a JPEG or PNG image but GIF"},
      {std::string("RIFF\0\0\0\0WEBPVP8 ", 16), "'pic': not a JPEG or PNG image but WebP"},
      {std::string("II*\0\x08", 5), "'pic': not a JPEG or PNG image but TIFF"},
  };
  for (const auto& [bytes, sentence] : cases) {
    expect_error<DataError>([&, &bytes = bytes] { decode(bytes); }, {sentence});
  }
  expect_error<DataError>([&] { decode_image("text", "a\n<b>\xff.jpg", {}); }, {"'a\\x0a<b>\\xff.jpg': not"});
}

TEST(ImageDecode, BytesDetermineTheFormat) {
  const Image original = smooth_image(8, 8);
  EXPECT_EQ(difference(decode_image(png_file(original), "a.jpg", {}).image, original), 0);
  EXPECT_LE(difference(decode_image(jpeg_file(original), "a.png", {}).image, original), kJpegLevels);
}

// Their pixels would take 10 GB: the test's memory shows that nothing was allocated for them.
TEST(ImageDecode, BombsAreRefusedByTheirSize) {
  const std::string small = jpeg_file(smooth_image(16, 16));
  const std::string jpeg = jpeg_with_size(small, 60000, 60000);
  const std::string sentence = "'pic': 60000x60000 pixels are more than the 134217728 that renorm reads";
  for (const std::string& bomb : {jpeg, png_header(60000, 60000)}) {
    expect_error<DataError>([&] { decode(bomb); }, {sentence});
    expect_error<DataError>([&] { image_size(bomb, "pic", {}); }, {sentence});
  }
  expect_error<DataError>([&] { decode(png_header(0x7fffffff, 0x7fffffff)); },
                          {"2147483647x2147483647 pixels"});
  expect_error<DataError>([&] { decode(png_header(0, 5)); }, {"'pic': the PNG cannot be read"});
  DecodeLimits limits;
  limits.max_pixels = 255;
  expect_error<DataError>([&] { decode(small, limits); }, {"16x16 pixels are more than the 255"});
  limits.max_pixels = 256;
  EXPECT_EQ(decode(small, limits).width, 16);
}

TEST(ImageDecode, ScansWithoutEndAreRefused) {
  JpegFile kind;
  kind.progressive = true;
  kind.colours = JpegColours::kGrey;
  const std::string file = jpeg_file(smooth_image(8, 8, 1), kind);
  // The first scan may be repeated.
  const size_t first = file.find("\xff\xda");
  const size_t next = file.find('\xff', first + 1);
  std::string many = file.substr(0, next);
  for (int i = 0; i < 200; ++i) many += file.substr(first, next - first);
  many += file.substr(next);
  expect_error<DataError>([&] { decode(many); }, {"'pic': the JPEG cannot be read (more than 100 scans)"});
}

}  // namespace
}  // namespace renorm::data::testing
