#include "data/image.h"

#include <algorithm>

namespace renorm::data {
namespace {

constexpr size_t kHeaderBytes = 8;
constexpr size_t kEntryBytes = 12;
constexpr uint32_t kTiffVersion = 42;
constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShort = 3;  // the type of the value
constexpr int kMaxOrientation = 8;

// Numbers in the byte order that the block states; the caller keeps within its size.
struct TiffReader {
  const uint8_t* block;
  bool little;

  uint32_t number(size_t at, size_t bytes) const {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value = (value << 8) | block[little ? at + bytes - 1 - i : at + i];
    return value;
  }
};

// Where the stored pixel of an upright one lies: start + x * across + y * down, in pixels.
struct Walk {
  int64_t start;
  int64_t across;
  int64_t down;
};

Walk walk_of(int64_t width, int64_t height, int orientation) {
  const int64_t right = width - 1;
  const int64_t bottom = (height - 1) * width;
  switch (orientation) {
    case 2:
      return {right, -1, width};
    case 3:
      return {bottom + right, -1, -width};
    case 4:
      return {bottom, 1, -width};
    case 5:
      return {0, width, 1};
    case 6:
      return {bottom, -width, 1};
    case 7:
      return {bottom + right, -width, -1};
    case 8:
      return {right, width, -1};
    default:
      return {0, 1, width};
  }
}

}  // namespace

int exif_orientation(const uint8_t* block, size_t size) {
  if (size < kHeaderBytes || block[0] != block[1] || (block[0] != 'I' && block[0] != 'M')) return 1;
  const TiffReader reader{block, block[0] == 'I'};
  const size_t directory = reader.number(4, 4);
  if (reader.number(2, 2) != kTiffVersion || directory > size - 2) return 1;
  const size_t stated = reader.number(directory, 2);
  const size_t entries = std::min(stated, (size - 2 - directory) / kEntryBytes);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (reader.number(entry, 2) != kOrientationTag) continue;
    if (reader.number(entry + 2, 2) != kShort || reader.number(entry + 4, 4) != 1) return 1;
    const int value = static_cast<int>(reader.number(entry + 8, 2));
    return value >= 1 && value <= kMaxOrientation ? value : 1;
  }
  return 1;
}

Image upright(Image stored, int orientation) {
  if (orientation == 1) return stored;
  const Walk walk = walk_of(stored.width, stored.height, orientation);
  const bool sideways = turns_sideways(orientation);
  Image turned = blank_image(sideways ? stored.height : stored.width, sideways ? stored.width : stored.height,
                             stored.channels);
  uint8_t* into = turned.pixels.data();
  for (int64_t y = 0; y < turned.height; ++y) {
    for (int64_t x = 0; x < turned.width; ++x) {
      const int64_t from = (walk.start + x * walk.across + y * walk.down) * stored.channels;
      into = std::copy_n(stored.pixels.data() + from, stored.channels, into);
    }
  }
  return turned;
}

}  // namespace renorm::data
