// JPEG and PNG files as pictures. No torch.
#pragma once

#include <cstdint>
#include <string>

#include "data/image.h"

namespace renorm::data {

struct DecodeLimits {
  // Of the file, however small it is decoded: 134 million, above the cameras of 100 million.
  int64_t most_pixels = int64_t{1} << 27;
  // A JPEG may be decoded at 1/8, 1/4 or 1/2 of its size if its shorter side still has this many pixels; 0:
  // at full size. These are the scales that libjpeg-turbo does faster than the full size.
  int64_t wanted_side = 0;
};

// The size of the upright picture at full size, from the file's header alone. Throws as decode_image does.
ImageSize image_size(const std::string& bytes, const std::string& file, const DecodeLimits& limits);

// The upright picture in red, green and blue. What the file is, its first bytes say, not its name.
// - JPEG: grey, YCbCr, RGB, CMYK and YCCK (inverted, as Adobe writes them, if the Adobe marker is there);
//   sequential or progressive. Only a missing end marker of a sequential file is forgiven. Altered bytes that
//   still are codes cannot be told from a picture.
// - PNG: every colour type and depth, interlaced too. Of 16 bits a value is rounded to 8. What is
//   transparent is mixed with white. Gamma and colour profiles are ignored, as in training code at large.
// - Both are turned upright as their EXIF orientation says; an EXIF block that makes no sense says nothing.
// Throws DataError "'FILE': ..." for anything else, for a damaged file, and, before memory is taken for
// them, for more than `most_pixels`.
Image decode_image(const std::string& bytes, const std::string& file, const DecodeLimits& limits);

}  // namespace renorm::data
