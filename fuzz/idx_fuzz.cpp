// Input: a byte with the number of classes, two bytes (low first) with the length of the images file, that
// file, and the labels file as the rest.
#include "data/idx.h"
#include "fuzz.h"

using namespace renorm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const int64_t classes = std::max<int64_t>(data[0], 1);
  const std::string rest = fuzz::text_of(data + 3, size - 3);
  const size_t cut = std::min<size_t>(data[1] + 256 * data[2], rest.size());
  fuzz::accepts([&] {
    const auto images =
        data::parse_idx(rest.substr(0, cut), fuzz::kFile, rest.substr(cut), fuzz::kFile, classes);
    fuzz::expect(static_cast<int64_t>(images.pixels.size()) == images.size() * images.image_bytes(),
                 "pixels do not fit the shape");
    for (const int64_t label : images.labels)
      fuzz::expect(label >= 0 && label < classes, "a label out of range");
  });
  return 0;
}
