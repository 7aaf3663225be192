#include "data/byte_images.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace renorm::data {
namespace {

constexpr double kFullByte = 255.0;
using Histogram = std::array<int64_t, 256>;

std::vector<Histogram> channel_histograms(const ByteImages& images) {
  std::vector<Histogram> counts(static_cast<size_t>(images.channels), Histogram{});
  const int64_t area = images.height * images.width;
  for (int64_t i = 0; i < images.size(); ++i) {
    const uint8_t* pixel = images.image(i);
    for (Histogram& count : counts) {
      for (int64_t p = 0; p < area; ++p) ++count[*pixel++];
    }
  }
  return counts;
}

}  // namespace

ChannelMoments channel_moments(const ByteImages& images) {
  ChannelMoments moments;
  const double values =
      std::max(1.0, static_cast<double>(images.size()) * static_cast<double>(images.height * images.width));
  for (const Histogram& counts : channel_histograms(images)) {
    int64_t sum = 0;
    for (size_t byte = 0; byte < counts.size(); ++byte) sum += counts[byte] * static_cast<int64_t>(byte);
    const double mean = static_cast<double>(sum) / values;
    double squares = 0.0;
    for (size_t byte = 0; byte < counts.size(); ++byte) {
      const double centred = static_cast<double>(byte) - mean;
      squares += static_cast<double>(counts[byte]) * (centred * centred);
    }
    moments.mean.push_back(mean / kFullByte);
    moments.std.push_back(std::max(1.0, std::sqrt(squares / values)) / kFullByte);
  }
  return moments;
}

}  // namespace renorm::data
