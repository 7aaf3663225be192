// A picture of many pictures: a row a class, its images side by side.
#pragma once

#include <cstdint>
#include <string>

#include "data/byte_images.h"

namespace renorm::cli {

// Rows and columns that are asked for; there may be fewer classes and images.
struct SheetSize {
  int64_t classes = 10;
  int64_t images = 10;
};

// The first images of the first classes as the bytes of a PNG file. Small images are enlarged by a whole
// factor, each pixel a square. Throws UsageError for a sheet of more than 100 million pixels or without rows
// or columns.
std::string contact_sheet_png(const data::ByteImages& images, const SheetSize& size);

}  // namespace renorm::cli
