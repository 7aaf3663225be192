// The two formats behind image_decode.h; nobody else needs them.
#pragma once

#include <string>

#include "data/image.h"
#include "data/image_decode.h"

namespace renorm::data {

// A picture as the file holds it, not yet turned upright.
struct StoredImage {
  ImageSize size;       // at full size
  int orientation = 1;  // EXIF, 1 .. 8
  Image image;          // empty if only the header was asked for
};

enum class DecodePart { kHeader, kAll };

StoredImage decode_jpeg(const std::string& bytes, const std::string& file, const DecodeLimits& limits,
                        DecodePart part);
StoredImage decode_png(const std::string& bytes, const std::string& file, const DecodeLimits& limits,
                       DecodePart part);

// Throws DataError if there are too many pixels.
void check_pixels(ImageSize size, const std::string& file, const DecodeLimits& limits);

}  // namespace renorm::data
