// From a picture's file to the square of bytes that a net is shown. No torch.
#pragma once

#include <cstdint>
#include <string>

#include "base/random.h"
#include "data/image.h"
#include "data/image_decode.h"
#include "data/image_resize.h"

namespace renorm::data {

struct ColourJitter {
  double brightness = 0.4;  // each factor is drawn from [max(0, 1 - x), 1 + x]; 0 leaves it out
  double contrast = 0.4;
  double saturation = 0.4;
};

struct TransformOptions {
  int64_t size = 224;        // pixels a side of the result, > 0
  double least_area = 0.08;  // of the picture, that a training crop takes; 0 < least <= most <= 1
  double most_area = 1.0;
  double least_ratio = 3.0 / 4.0;  // width / height of a training crop; 0 < least <= most
  double most_ratio = 4.0 / 3.0;
  double flip = 0.5;  // how often a training picture is mirrored, left to right
  ColourJitter jitter;
  double centre = 0.875;  // side of the evaluation crop in units of the shorter side, 0 < centre <= 1
};

// A crop whose area and shape are uniform and log-uniform in their ranges, at a place where it fits. If ten
// tries do not fit, the centre: the whole picture, cut to the nearest ratio that is allowed. Places and sides
// are fractions of pixels, so they mean the same however small a JPEG is decoded.
Box training_box(ImageSize picture, const TransformOptions& options, RandomStream& stream);
// What cutting the centre from the picture resized to size / centre on its shorter side would show.
Box evaluation_box(ImageSize picture, const TransformOptions& options);

// Mirrors left to right.
void flip(Image* image);

struct ColourFactors {
  double brightness = 1.0;
  double contrast = 1.0;
  double saturation = 1.0;
};
ColourFactors draw_factors(const ColourJitter& jitter, RandomStream& stream);
// Brightness multiplies, contrast moves away from the mean grey of the picture, saturation from the grey of
// the pixel; in this order, rounded and cut off at 0 and 255 once, at the end. For three channels.
void change_colours(const ColourFactors& factors, Image* image);

// A square of options.size pixels in red, green and blue. All that is random comes from `stream`. A large
// JPEG is decoded no larger than the crop needs. Throws as decode_image does.
Image training_image(const std::string& bytes, const std::string& file, const TransformOptions& options,
                     RandomStream& stream);
Image evaluation_image(const std::string& bytes, const std::string& file, const TransformOptions& options);

}  // namespace renorm::data
