// JPEG and PNG files: reading and decoding.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/errors.h"
#include "base/files.h"
#include "data/decode_share.h"
#include "data/image.h"

namespace renorm::data {

struct DecodeLimits {
  // Of the image at full size, even if it is decoded smaller: 134 million, above cameras of 100 million.
  int64_t max_pixels = int64_t{1} << 27;
  // A JPEG is decoded at 1/8, 1/4 or 1/2 of its size if its shorter side still has this many pixels; 0: at
  // full size. These are the scales at which libjpeg-turbo is faster than at full size.
  int64_t wanted_side = 0;
};

// By the first bytes.
bool is_png(const std::string& bytes);

// The size of the upright image at full size, from the file's header alone. Throws as decode_image does.
ImageSize image_size(const std::string& bytes, const std::string& file, const DecodeLimits& limits);

struct DecodedImage {
  Image image;
  DecodeShare share;  // of the budget, until the image is gone
};

// The upright image in red, green and blue. The first bytes of the file determine its format, not its name.
// - JPEG: grey, YCbCr, RGB, CMYK and YCCK (inverted, as Adobe writes them, if the Adobe marker is there);
//   sequential or progressive. Only a missing end marker of a sequential file is forgiven. Altered bytes that
//   are still valid codes are not detected.
// - PNG: every colour type and depth, interlaced too. Values of 16 bits are rounded to 8. Transparent pixels
//   are mixed with white. Gamma and colour profiles are ignored, as is usual in training code.
// - Both are turned upright by their EXIF orientation; an invalid EXIF block is ignored.
// A large image may wait until others are gone, see DecodeShare.
// Throws DataError "'FILE': ..." for anything else, for a damaged file, and, before memory is allocated, for
// more than `max_pixels`.
DecodedImage decode_image(const std::string& bytes, const std::string& file, const DecodeLimits& limits);

// 268 million: above the size of any image of max_pixels, unless it is padded.
constexpr int64_t kMaxImageFileBytes = int64_t{1} << 28;

// Throws as read_file does.
inline std::string read_image_file(const std::string& path) { return read_file(path, kMaxImageFileBytes); }

// Why an image cannot be used.
struct ImageFault {
  bool is_missing = false;  // gone or unreadable, not damaged
  std::string reason;
};

// Calls read(), which reads and decodes an image. Returns the fault if the file is damaged, gone or
// unreadable.
template <typename Read>
std::optional<ImageFault> fault_of(Read&& read) {
  try {
    read();
    return std::nullopt;
  } catch (const DataError& error) {
    return ImageFault{false, error.what()};
  } catch (const MissingInputError& error) {
    return ImageFault{true, error.what()};
  } catch (const IoError& error) {
    return ImageFault{false, error.what()};
  }
}

// The rest of this header is for the decoders of the formats.

// An image before it is turned upright.
struct StoredImage {
  ImageSize size;       // at full size
  int orientation = 1;  // EXIF, 1 .. 8
  Image image;          // empty if only the header was read
  DecodeShare share;    // of decoding and turning it
};

enum class DecodePart { kHeader, kAll };

// Throws DataError if there are too many pixels.
void check_pixels(ImageSize size, const std::string& file, const DecodeLimits& limits);

}  // namespace renorm::data
