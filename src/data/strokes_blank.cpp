#include "data/strokes_blank.h"

#include <fmt/format.h>

namespace renorm::data {
namespace {

ByteImages blank_images(const StrokesOptions& options, int64_t of_label) {
  ByteImages images;
  images.channels = 1;
  images.height = options.size;
  images.width = options.size;
  images.pixels.resize(static_cast<size_t>(options.classes * of_label * images.image_bytes()));
  images.labels.reserve(static_cast<size_t>(options.classes * of_label));
  for (int64_t label = 0; label < options.classes; ++label) {
    images.labels.insert(images.labels.end(), static_cast<size_t>(of_label), label);
  }
  return images;
}

}  // namespace

ByteDataset blank_strokes(const StrokesOptions& options) {
  ByteDataset data;
  data.name = to_spec(options);
  for (int64_t label = 0; label < options.classes; ++label) {
    data.classes.push_back(fmt::format("class-{:03}", label));
  }
  data.train = blank_images(options, options.train);
  data.test = blank_images(options, options.test);
  return data;
}

}  // namespace renorm::data
