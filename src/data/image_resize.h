// Antialiased resizing of a part of an image.
#pragma once

#include <cstdint>

#include "data/image.h"

namespace renorm::data {

// A rectangle in pixel units, fractions allowed: pixel (x, y) covers [x, x + 1) x [y, y + 1).
struct Box {
  double left = 0.0;
  double top = 0.0;
  double width = 0.0;
  double height = 0.0;
};

inline Box whole(ImageSize size) {
  return {0.0, 0.0, static_cast<double>(size.width), static_cast<double>(size.height)};
}

// The part of `source` in `box` as an image of the given size. Every value is a mean of the source, weighted
// by a triangle around its place whose half-width is one pixel of the coarser of the two grids (BILINEAR in
// PIL, antialias=True in torchvision). The triangle also covers pixels of the image beside the box, as if the
// whole had been resized and then cropped. Computed in float and rounded once; the same bits on every
// machine. The box must overlap the image and have positive sides; `size` must be positive.
Image resize(const Image& source, const Box& box, ImageSize size);

}  // namespace renorm::data
