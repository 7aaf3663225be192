// Small images and their files, written by the libraries themselves.
#pragma once

#include <cstdint>
#include <string>

#include "data/image.h"

namespace renorm::data::testing {

// A smooth image in which every pixel differs from its neighbours: JPEG keeps it within a few levels.
Image smooth_image(int64_t width, int64_t height, int64_t channels = 3);
// Independent random bytes.
Image noisy_image(int64_t width, int64_t height, int64_t channels, uint64_t seed);

enum class JpegColours { kGrey, kYcc, kRgb, kCmyk, kYcck };
struct JpegFile {
  JpegColours colours = JpegColours::kYcc;
  bool adobe = true;  // inks are inverted, as a marker states
  bool progressive = false;
  bool arithmetic = false;
  bool subsampled = false;
  int orientation = 0;  // 0: no EXIF block
  int restart = 0;      // MCUs between restart markers
  int quality = 95;
};
// Inks are made so that they show the image. A grey file takes the first channel.
std::string jpeg_file(const Image& image, const JpegFile& kind = {});

// An EXIF block that states an orientation, in either byte order.
std::string exif_block(int orientation, bool little_endian);

struct PngFile {
  int colour_type = 2;  // 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGB and alpha
  int depth = 8;
  bool interlaced = false;
  int transparent = -1;  // 0, 2: this value in all channels; 3: this entry of the palette
  int orientation = 0;   // 0: no EXIF block
};
// `samples` are rows of width * channels values of `depth` bits, 16-bit ones high byte first, each row padded
// to whole bytes. The palette has 2^depth (at most 256) entries (i, 255 - i, i / 2).
std::string png_file(int64_t width, int64_t height, const std::string& samples, const PngFile& kind = {});
std::string png_file(const Image& image);

// Without any pixels: a PNG whose header states this size.
std::string png_header(uint32_t width, uint32_t height);
// A JPEG whose header states another size than it has.
std::string jpeg_with_size(std::string jpeg, uint32_t width, uint32_t height);

// The largest difference of two images of one size, in levels.
int difference(const Image& a, const Image& b);

}  // namespace renorm::data::testing
