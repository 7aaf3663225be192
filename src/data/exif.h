// Which way up a picture is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "data/image.h"

namespace renorm::data {

// The orientation, 1 .. 8, that an EXIF block (a TIFF header and its first directory) states; 1 if it states
// none or is damaged.
int exif_orientation(const uint8_t* block, size_t size);

// Orientations 5 .. 8 exchange width and height.
inline bool turns_sideways(int orientation) { return orientation >= 5; }

// The picture turned and mirrored so that its orientation becomes 1.
Image upright(Image stored, int orientation);

}  // namespace renorm::data
