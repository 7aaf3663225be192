// Input: a byte with the wanted side, then an image file; the checksums of a PNG are corrected. Few pixels
// are allowed, so that an input takes little time.
#include <zlib.h>

#include "data/image_decode.h"
#include "data/image_resize.h"
#include "fuzz.h"

using namespace renorm;

namespace {

constexpr size_t kSignature = 8;

// Without this, nearly every altered PNG would be refused for its checksums alone.
void repair_png(std::string* bytes) {
  if (bytes->compare(0, 4, "\x89PNG") != 0) return;
  for (size_t at = kSignature; at + 12 <= bytes->size();) {
    auto* chunk = reinterpret_cast<unsigned char*>(bytes->data()) + at;
    const size_t length = (size_t{chunk[0]} << 24) | (chunk[1] << 16) | (chunk[2] << 8) | chunk[3];
    if (length > bytes->size() - at - 12) return;
    const auto sum = static_cast<uint32_t>(crc32(0, chunk + 4, static_cast<uInt>(length + 4)));
    for (int i = 0; i < 4; ++i) chunk[length + 8 + i] = static_cast<unsigned char>(sum >> (24 - 8 * i));
    at += length + 12;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  data::DecodeLimits limits;
  limits.max_pixels = 1 << 14;
  limits.wanted_side = data[0];
  std::string bytes = fuzz::text_of(data + 1, size - 1);
  repair_png(&bytes);
  const std::string start = std::string("'") + fuzz::kFile + "'";
  data::ImageSize full;
  data::Image image;
  if (!fuzz::accepts([&] { full = data::image_size(bytes, fuzz::kFile, limits); }, start)) return 0;
  fuzz::expect(full.width > 0 && full.height > 0, "an image without pixels");
  fuzz::expect(full.width * full.height <= limits.max_pixels, "more pixels than allowed");
  if (!fuzz::accepts([&] { image = data::decode_image(bytes, fuzz::kFile, limits).image; }, start)) return 0;
  fuzz::expect(image.channels == 3, "not three channels");
  fuzz::expect(static_cast<int64_t>(image.pixels.size()) == image.height * image.row_bytes(),
               "pixels are lost");
  const bool whole = image.width == full.width && image.height == full.height;
  const bool wanted = limits.wanted_side > 0 && std::min(image.width, image.height) >= limits.wanted_side;
  fuzz::expect(whole || wanted, "smaller than wanted");
  fuzz::expect(data::decode_image(bytes, fuzz::kFile, limits).image.pixels == image.pixels,
               "decoded differently");
  const data::Box box{0.3, 0.6, static_cast<double>(image.width) - 0.5,
                      static_cast<double>(image.height) - 0.8};
  const data::Image resized = data::resize(image, box, {5, 4});
  fuzz::expect(resized.pixels.size() == 60, "resized to another size");
  return 0;
}
