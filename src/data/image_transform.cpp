#include "data/image_transform.h"

#include <algorithm>
#include <cmath>

#include "base/portable_math.h"

namespace renorm::data {
namespace {

constexpr int kTries = 10;
constexpr float kFull = 255.0F;
// The brightness of the colours, as in ITU-R BT.601.
constexpr double kRed = 0.299;
constexpr double kGreen = 0.587;
constexpr double kBlue = 0.114;

Box centred(ImageSize full, double width, double height) {
  return {(static_cast<double>(full.width) - width) / 2, (static_cast<double>(full.height) - height) / 2,
          width, height};
}

double shorter_side(ImageSize size) { return static_cast<double>(std::min(size.width, size.height)); }

// The part of the file's image in `box`, decoded just large enough. `full` is the size of the whole image.
Image load_box(const std::string& bytes, const std::string& file, ImageSize full, const Box& box,
               int64_t size) {
  DecodeLimits limits;
  const double scale = static_cast<double>(size) / std::min(box.width, box.height);
  if (scale < 1.0) limits.wanted_side = static_cast<int64_t>(std::ceil(scale * shorter_side(full)));
  const DecodedImage decoded = decode_image(bytes, file, limits);
  const Image& image = decoded.image;
  const double x = static_cast<double>(image.width) / static_cast<double>(full.width);
  const double y = static_cast<double>(image.height) / static_cast<double>(full.height);
  return resize(image, {box.left * x, box.top * y, box.width * x, box.height * y}, {size, size});
}

double draw_factor(double spread, RandomStream& stream) {
  return stream.uniform(std::max(0.0, 1.0 - spread), 1.0 + spread);
}

// The mean brightness. The sums are whole numbers, so their order does not matter.
double mean_grey(const Image& image) {
  uint64_t sums[3] = {};
  for (size_t i = 0; i < image.pixels.size(); i += 3) {
    for (size_t c = 0; c < 3; ++c) sums[c] += image.pixels[i + c];
  }
  const double total = kRed * static_cast<double>(sums[0]) + kGreen * static_cast<double>(sums[1]) +
                       kBlue * static_cast<double>(sums[2]);
  return total / static_cast<double>(image.width * image.height);
}

}  // namespace

Box training_box(ImageSize full, const TransformOptions& options, RandomStream& stream) {
  const auto width = static_cast<double>(full.width);
  const auto height = static_cast<double>(full.height);
  const double min = portable_log(options.min_ratio);
  const double max = portable_log(options.max_ratio);
  for (int i = 0; i < kTries; ++i) {
    const double area = width * height * stream.uniform(options.min_area, options.max_area);
    const double ratio = portable_exp(stream.uniform(min, max));
    Box box{0.0, 0.0, std::sqrt(area * ratio), std::sqrt(area / ratio)};
    if (box.width > width || box.height > height) continue;
    box.left = stream.uniform(0.0, width - box.width);
    box.top = stream.uniform(0.0, height - box.height);
    return box;
  }
  const double ratio = std::clamp(width / height, options.min_ratio, options.max_ratio);
  return centred(full, std::min(width, height * ratio), std::min(height, width / ratio));
}

Box evaluation_box(ImageSize full, const TransformOptions& options) {
  const double side = shorter_side(full) * options.centre;
  return centred(full, side, side);
}

void flip(Image* image) {
  for (int64_t y = 0; y < image->height; ++y) {
    uint8_t* row = image->row(y);
    for (int64_t left = 0, right = image->width - 1; left < right; ++left, --right) {
      std::swap_ranges(row + left * image->channels, row + (left + 1) * image->channels,
                       row + right * image->channels);
    }
  }
}

ColourFactors draw_factors(const ColourJitter& jitter, RandomStream& stream) {
  ColourFactors factors;
  factors.brightness = draw_factor(jitter.brightness, stream);
  factors.contrast = draw_factor(jitter.contrast, stream);
  factors.saturation = draw_factor(jitter.saturation, stream);
  return factors;
}

void change_colours(const ColourFactors& factors, Image* image) {
  if (factors.brightness == 1.0 && factors.contrast == 1.0 && factors.saturation == 1.0) return;
  // All three are linear: value * gain + offset, then away from the pixel's grey. The tables hold what each
  // value contributes to both.
  const double gain = factors.brightness * factors.contrast;
  const double offset = (1.0 - factors.contrast) * factors.brightness * mean_grey(*image);
  float own[256], red[256], green[256], blue[256];
  for (int value = 0; value < 256; ++value) {
    const double changed = value * gain + offset;
    own[value] = static_cast<float>(factors.saturation * changed);
    const double grey = (1.0 - factors.saturation) * changed;
    red[value] = static_cast<float>(kRed * grey + 0.5);
    green[value] = static_cast<float>(kGreen * grey);
    blue[value] = static_cast<float>(kBlue * grey);
  }
  for (size_t i = 0; i < image->pixels.size(); i += 3) {
    uint8_t* pixel = image->pixels.data() + i;
    const float grey = red[pixel[0]] + green[pixel[1]] + blue[pixel[2]];
    for (int c = 0; c < 3; ++c) {
      pixel[c] = static_cast<uint8_t>(std::min(std::max(own[pixel[c]] + grey, 0.0F), kFull));
    }
  }
}

Image training_image(const std::string& bytes, const std::string& file, const TransformOptions& options,
                     RandomStream& stream) {
  const ImageSize full = image_size(bytes, file, {});
  const Box box = training_box(full, options, stream);
  Image image = load_box(bytes, file, full, box, options.size);
  if (stream.uniform() < options.flip) flip(&image);
  change_colours(draw_factors(options.jitter, stream), &image);
  return image;
}

Image evaluation_image(const std::string& bytes, const std::string& file, const TransformOptions& options) {
  const ImageSize full = image_size(bytes, file, {});
  return load_box(bytes, file, full, evaluation_box(full, options), options.size);
}

}  // namespace renorm::data
