// An image in memory, and which way up it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace renorm::data {

struct Image {
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 0;         // 1 (grey) or 3 (red, green, blue)
  std::vector<uint8_t> pixels;  // [row][column][channel]

  int64_t row_bytes() const { return width * channels; }
  uint8_t* row(int64_t y) { return pixels.data() + y * row_bytes(); }
  const uint8_t* row(int64_t y) const { return pixels.data() + y * row_bytes(); }
};

inline Image blank_image(int64_t width, int64_t height, int64_t channels) {
  return {width, height, channels, std::vector<uint8_t>(static_cast<size_t>(width * height * channels))};
}

struct ImageSize {
  int64_t width = 0;
  int64_t height = 0;
};

// The orientation, 1 .. 8, that an EXIF block (a TIFF header and its first directory) states; 1 if it states
// none or is damaged.
int exif_orientation(const uint8_t* block, size_t size);

// Orientations 5 .. 8 exchange width and height.
inline bool turns_sideways(int orientation) { return orientation >= 5; }

// The image, turned and mirrored so that its orientation becomes 1.
Image upright(Image stored, int orientation);

}  // namespace renorm::data
