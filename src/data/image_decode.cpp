#include "data/image_decode.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "data/jpeg_decode.h"
#include "data/png_decode.h"

namespace renorm::data {
namespace {

struct Signature {
  const char* kind;
  size_t at;
  const char* bytes;
  size_t size;
};
constexpr Signature kJpeg{"JPEG", 0, "\xff\xd8\xff", 3};
constexpr Signature kPng{"PNG", 0, "\x89PNG\r\n\x1a\n", 8};
// Other formats that occur under names that end in .jpg.
constexpr Signature kOthers[] = {
    {"GIF", 0, "GIF8", 4},   {"WebP", 8, "WEBP", 4},    {"BMP", 0, "BM", 2},       {"TIFF", 0, "II*\0", 4},
    {"TIFF", 0, "MM\0*", 4}, {"HEIF", 4, "ftyphei", 7}, {"AVIF", 4, "ftypavif", 8}};

bool has(const std::string& bytes, const Signature& signature) {
  return bytes.size() >= signature.at + signature.size &&
         std::memcmp(bytes.data() + signature.at, signature.bytes, signature.size) == 0;
}

[[noreturn]] void refuse_kind(const std::string& bytes, const std::string& file) {
  if (bytes.empty()) throw DataError(fmt::format("'{}': an empty file", printable(file)));
  for (const Signature& other : kOthers) {
    if (has(bytes, other)) {
      throw DataError(fmt::format("'{}': not a JPEG or PNG image but {}", printable(file), other.kind));
    }
  }
  throw DataError(fmt::format("'{}': not a JPEG or PNG image", printable(file)));
}

StoredImage decode_stored(const std::string& bytes, const std::string& file, const DecodeLimits& limits,
                          DecodePart part) {
  if (has(bytes, kJpeg)) return decode_jpeg(bytes, file, limits, part);
  if (has(bytes, kPng)) return decode_png(bytes, file, limits, part);
  refuse_kind(bytes, file);
}

}  // namespace

void check_pixels(ImageSize size, const std::string& file, const DecodeLimits& limits) {
  // Both sides have at most 31 bits, so the product cannot overflow.
  if (size.width * size.height <= limits.max_pixels) return;
  throw DataError(fmt::format("'{}': {}x{} pixels are more than the {} that renorm reads", printable(file),
                              size.width, size.height, limits.max_pixels));
}

bool is_png(const std::string& bytes) { return has(bytes, kPng); }

ImageSize image_size(const std::string& bytes, const std::string& file, const DecodeLimits& limits) {
  const StoredImage stored = decode_stored(bytes, file, limits, DecodePart::kHeader);
  if (!turns_sideways(stored.orientation)) return stored.size;
  return {stored.size.height, stored.size.width};
}

DecodedImage decode_image(const std::string& bytes, const std::string& file, const DecodeLimits& limits) {
  StoredImage stored = decode_stored(bytes, file, limits, DecodePart::kAll);
  return {upright(std::move(stored.image), stored.orientation), std::move(stored.share)};
}

}  // namespace renorm::data
