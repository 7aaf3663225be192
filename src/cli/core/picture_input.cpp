#include "cli/core/picture_input.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "data/image_decode.h"
#include "data/image_transform.h"

namespace renorm::cli {
namespace {

using Input = train::ModelCard::Input;

constexpr int64_t kColours = 3;

// The middle of the picture in the model's own shape, which is not square.
data::Image middle(const std::string& bytes, const std::string& file, const Input& input) {
  const data::Image image = data::decode_image(bytes, file, {});
  const auto width = static_cast<double>(image.width);
  const auto height = static_cast<double>(image.height);
  const double ratio = static_cast<double>(input.width) / static_cast<double>(input.height);
  const double box_width = input.centre * std::min(width, height * ratio);
  const double box_height = box_width / ratio;
  const data::Box box{(width - box_width) / 2, (height - box_height) / 2, box_width, box_height};
  return data::resize(image, box, {input.width, input.height});
}

data::Image shown_part(const std::string& bytes, const std::string& file, const Input& input) {
  if (input.width != input.height) return middle(bytes, file, input);
  data::TransformOptions options;
  options.size = input.height;
  options.centre = input.centre;
  return data::evaluation_image(bytes, file, options);
}

// How bright a pixel is, as television weighs the colours.
uint8_t grey(const uint8_t* pixel) {
  return static_cast<uint8_t>((299 * pixel[0] + 587 * pixel[1] + 114 * pixel[2] + 500) / 1000);
}

}  // namespace

PictureInput::PictureInput(const Input& input) : input_(input) {
  if (input.channels != 1 && input.channels != kColours) {
    throw UsageError(fmt::format("pictures can be shown to models of 1 or 3 channels, and this one takes {}",
                                 input.channels));
  }
  data::Description description;
  description.mean = input.mean;
  description.std = input.std;
  tables_ = data::standardizing_tables(description);
}

void PictureInput::read(const std::string& file, float* out) const {
  const data::Image image = shown_part(data::read_image_file(file), file, input_);
  const int64_t area = image.width * image.height;
  const uint8_t* pixels = image.pixels.data();
  for (int64_t c = 0; c < input_.channels; ++c) {
    const data::ByteTable& table = tables_[static_cast<size_t>(c)];
    for (int64_t p = 0; p < area; ++p) {
      const uint8_t* pixel = pixels + p * kColours;
      *out++ = table[input_.channels == 1 ? grey(pixel) : pixel[c]];
    }
  }
}

}  // namespace renorm::cli
