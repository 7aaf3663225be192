// Images of one size as bytes, with labels: the form in which small data sets are read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/random.h"

namespace renorm::data {

struct ByteImages {
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;  // [image][channel][row][column]
  std::vector<int64_t> labels;  // one per image

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  int64_t image_bytes() const { return channels * height * width; }
  const uint8_t* image(int64_t index) const { return pixels.data() + index * image_bytes(); }
};

// Mean and standard deviation of each channel over all images, in units of a full byte (0 .. 1). The
// standard deviation is at least 1/255.
struct ChannelMoments {
  std::vector<double> mean;
  std::vector<double> std;
};
// Computed from counts of the 256 values in a fixed order, so the result is the same on every machine.
ChannelMoments channel_moments(const ByteImages& images);

// A data set whose training and test images are in memory.
struct ByteDataset {
  std::string name;                  // the spec it was opened with
  std::vector<std::string> classes;  // names, one per label
  ByteImages train;
  ByteImages test;
  std::string full_name{};  // the spec with all options
  // Paints a new image of training example `index`, for a draw of it. Thread-safe; empty: examples have one
  // image.
  std::function<void(int64_t index, RandomStream& stream, uint8_t* pixels)> paint_anew{};
};

}  // namespace renorm::data
