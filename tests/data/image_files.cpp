#include "image_files.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "base/random.h"
#include "support.h"

// jpeglib.h needs FILE from before it.
// clang-format off
#include <jpeglib.h>
// clang-format on

namespace renorm::data::testing {
namespace {

std::string number(uint32_t value, size_t bytes, bool little_endian) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) {
    const size_t shift = 8 * (little_endian ? i : bytes - 1 - i);
    text += static_cast<char>((value >> shift) & 0xff);
  }
  return text;
}

// The row as the inks or channels of the file.
std::vector<uint8_t> jpeg_row(const Image& image, int64_t y, const JpegFile& kind, int components) {
  std::vector<uint8_t> row;
  for (int64_t x = 0; x < image.width; ++x) {
    const uint8_t* pixel = image.row(y) + x * image.channels;
    for (int c = 0; c < std::min(components, 3); ++c) row.push_back(pixel[c % image.channels]);
    if (components == 4) row.push_back(255);
  }
  if (components == 4 && !kind.adobe) {
    for (uint8_t& ink : row) ink = static_cast<uint8_t>(255 - ink);
  }
  return row;
}

void set_up(jpeg_compress_struct* info, const JpegFile& kind) {
  jpeg_set_defaults(info);
  constexpr J_COLOR_SPACE kSpaces[] = {JCS_GRAYSCALE, JCS_YCbCr, JCS_RGB, JCS_CMYK, JCS_YCCK};
  jpeg_set_colorspace(info, kSpaces[static_cast<size_t>(kind.colours)]);
  if (info->num_components == 4) info->write_Adobe_marker = kind.adobe ? TRUE : FALSE;
  jpeg_set_quality(info, kind.quality, TRUE);
  info->arith_code = kind.arithmetic ? TRUE : FALSE;
  info->restart_interval = static_cast<unsigned>(kind.restart);
  const int luma = kind.subsampled ? 2 : 1;
  info->comp_info[0].h_samp_factor = luma;
  info->comp_info[0].v_samp_factor = luma;
  if (info->num_components == 4) {
    info->comp_info[3].h_samp_factor = luma;
    info->comp_info[3].v_samp_factor = luma;
  }
  if (kind.progressive) jpeg_simple_progression(info);
}

void append_png(png_structp png, png_bytep bytes, size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<char*>(bytes), count);
}

void write_extras(png_structp png, png_infop info, const PngFile& kind) {
  if (kind.colour_type == PNG_COLOR_TYPE_PALETTE) {
    std::vector<png_color> palette;
    palette.reserve(size_t{1} << kind.depth);
    for (int i = 0; i < 1 << kind.depth; ++i) {
      palette.push_back(
          {static_cast<png_byte>(i), static_cast<png_byte>(255 - i), static_cast<png_byte>(i / 2)});
    }
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
  if (kind.transparent >= 0) {
    const auto value = static_cast<png_uint_16>(kind.transparent);
    const png_color_16 colour = {0, value, value, value, value};
    std::vector<png_byte> alphas(static_cast<size_t>(kind.transparent) + 1, 255);
    alphas.back() = 0;
    const bool palette = kind.colour_type == PNG_COLOR_TYPE_PALETTE;
    png_set_tRNS(png, info, alphas.data(), palette ? static_cast<int>(alphas.size()) : 0, &colour);
  }
  if (kind.orientation != 0) {
    std::string block = exif_block(kind.orientation, false);
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(block.size()),
                   reinterpret_cast<png_bytep>(block.data()));
  }
}

}  // namespace

Image smooth_image(int64_t width, int64_t height, int64_t channels) {
  Image image = blank_image(width, height, channels);
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const double across = (static_cast<double>(x) + 0.5) / static_cast<double>(width);
      const double down = (static_cast<double>(y) + 0.5) / static_cast<double>(height);
      const double values[] = {across, down, 1.0 - 0.5 * (across + down * down)};
      for (int64_t c = 0; c < channels; ++c) {
        image.row(y)[x * channels + c] = static_cast<uint8_t>(20.0 + 215.0 * values[c]);
      }
    }
  }
  return image;
}

Image noisy_image(int64_t width, int64_t height, int64_t channels, uint64_t seed) {
  Image image = blank_image(width, height, channels);
  RandomStream stream(seed, Purpose::kAugment);
  for (uint8_t& value : image.pixels) value = static_cast<uint8_t>(stream.below(256));
  return image;
}

std::string jpeg_file(const Image& image, const JpegFile& kind) {
  jpeg_error_mgr errors;
  jpeg_compress_struct info;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  const bool inks = kind.colours == JpegColours::kCmyk || kind.colours == JpegColours::kYcck;
  const bool grey = kind.colours == JpegColours::kGrey;
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = inks ? 4 : (grey ? 1 : 3);
  info.in_color_space = inks ? JCS_CMYK : (grey ? JCS_GRAYSCALE : JCS_RGB);
  set_up(&info, kind);
  jpeg_start_compress(&info, TRUE);
  if (kind.orientation != 0) {
    const std::string block = std::string("Exif\0\0", 6) + exif_block(kind.orientation, true);
    jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(block.data()),
                      static_cast<unsigned>(block.size()));
  }
  for (int64_t y = 0; y < image.height; ++y) {
    std::vector<uint8_t> row = jpeg_row(image, y, kind, info.input_components);
    JSAMPROW rows[] = {row.data()};
    jpeg_write_scanlines(&info, rows, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return file;
}

std::string exif_block(int orientation, bool little_endian) {
  const auto field = [little_endian](uint32_t value, size_t bytes) {
    return number(value, bytes, little_endian);
  };
  std::string block = little_endian ? "II" : "MM";
  block += field(42, 2) + field(8, 4) + field(2, 2);
  block += field(0x010f, 2) + field(2, 2) + field(4, 4) + std::string("me\0\0", 4);
  block += field(0x0112, 2) + field(3, 2) + field(1, 4) + field(static_cast<uint32_t>(orientation), 2) +
           std::string(2, '\0');
  return block + field(0, 4);
}

std::string png_file(int64_t width, int64_t height, const std::string& samples, const PngFile& kind) {
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  if (setjmp(png_jmpbuf(png)) != 0) std::abort();  // only a wrong test reaches this
  std::string file;
  png_set_write_fn(png, &file, append_png, nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), kind.depth,
               kind.colour_type, kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  write_extras(png, info, kind);
  png_write_info(png, info);
  const size_t row_bytes = png_get_rowbytes(png, info);
  if (samples.size() != row_bytes * static_cast<size_t>(height)) std::abort();
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < height; ++y) {
    rows.push_back(reinterpret_cast<png_bytep>(const_cast<char*>(samples.data())) +
                   static_cast<size_t>(y) * row_bytes);
  }
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}

std::string png_file(const Image& image) {
  PngFile kind;
  kind.colour_type = image.channels == 1 ? 0 : 2;
  return png_file(image.width, image.height, std::string(image.pixels.begin(), image.pixels.end()), kind);
}

std::string png_header(uint32_t width, uint32_t height) {
  const std::string chunk =
      "IHDR" + big_endian(width) + big_endian(height) + std::string("\x08\x02\0\0\0", 5);
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size()));
  const std::string data = std::string("\0\0\0\0IDAT", 8) + big_endian(0x35af061e);
  return "\x89PNG\r\n\x1a\n" + big_endian(13) + chunk + big_endian(static_cast<uint32_t>(sum)) + data;
}

std::string jpeg_with_size(std::string jpeg, uint32_t width, uint32_t height) {
  const size_t frame = jpeg.find("\xff\xc0");
  if (frame == std::string::npos) throw std::runtime_error("no frame header");
  jpeg.replace(frame + 5, 4, big_endian((height << 16) | width));
  return jpeg;
}

int difference(const Image& a, const Image& b) {
  if (a.width != b.width || a.height != b.height || a.channels != b.channels) return 256;
  int max = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) max = std::max(max, std::abs(a.pixels[i] - b.pixels[i]));
  return max;
}

}  // namespace renorm::data::testing
