// From an image file to the square of bytes that is the input of a net.
#pragma once

#include <cstdint>
#include <string>

#include "base/random.h"
#include "data/image.h"
#include "data/image_decode.h"
#include "data/image_resize.h"

namespace renorm::data {

struct ColourJitter {
  double brightness = 0.4;  // each factor is drawn from [max(0, 1 - x), 1 + x]; 0: no change
  double contrast = 0.4;
  double saturation = 0.4;
};

struct TransformOptions {
  int64_t size = 224;      // pixels per side of the result, > 0
  double min_area = 0.08;  // share of the image in a training crop; 0 < min <= max <= 1
  double max_area = 1.0;
  double min_ratio = 3.0 / 4.0;  // width / height of a training crop; 0 < min <= max
  double max_ratio = 4.0 / 3.0;
  double flip = 0.5;  // the probability that a training image is mirrored, left to right
  ColourJitter jitter;
  double centre = 0.875;  // side of the evaluation crop in units of the shorter side, 0 < centre <= 1
};

// A crop whose area is uniform and whose ratio is log-uniform in its range, at a uniform place where it fits.
// If ten tries do not fit, the centre: the whole image, cropped to the nearest ratio that is allowed. Places
// and sides are fractions of pixels, so they do not depend on the scale at which a JPEG is decoded.
Box training_box(ImageSize full, const TransformOptions& options, RandomStream& stream);
// The centre of the image that remains when its shorter side is resized to size / centre and then cropped.
Box evaluation_box(ImageSize full, const TransformOptions& options);

// Mirrors left to right.
void flip(Image* image);

struct ColourFactors {
  double brightness = 1.0;
  double contrast = 1.0;
  double saturation = 1.0;
};
ColourFactors draw_factors(const ColourJitter& jitter, RandomStream& stream);
// Brightness multiplies, contrast moves away from the mean grey of the image, saturation away from the grey
// of the pixel, in this order. Rounded and clamped to 0 .. 255 once, at the end. For three channels.
void change_colours(const ColourFactors& factors, Image* image);

// A square of options.size pixels in red, green and blue. All randomness comes from `stream`. A large JPEG is
// decoded no larger than the crop needs. Throws as decode_image does.
Image training_image(const std::string& bytes, const std::string& file, const TransformOptions& options,
                     RandomStream& stream);
Image evaluation_image(const std::string& bytes, const std::string& file, const TransformOptions& options);

}  // namespace renorm::data
