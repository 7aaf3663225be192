#include "data/image_resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace renorm::data {
namespace {

// For each value of an output line, the weights of neighbouring input places, which add up to 1.
struct Taps {
  struct Span {
    int64_t first;   // input place
    int64_t count;   // of weights
    int64_t offset;  // in `weights`
  };
  std::vector<Span> spans;
  std::vector<float> weights;
  int64_t begin = 0;  // all input places lie in [begin, end)
  int64_t end = 0;
};

Taps make_taps(double start, double length, int64_t input, int64_t output) {
  const double step = length / static_cast<double>(output);
  const double reach = std::max(step, 1.0);
  const double last_place = static_cast<double>(input - 1);
  Taps taps;
  taps.begin = input;
  std::vector<double> line;
  for (int64_t i = 0; i < output; ++i) {
    const double centre = start + (static_cast<double>(i) + 0.5) * step;
    // Places are the centres of pixels. Clamping twice keeps at least the nearest pixel.
    const auto first = static_cast<int64_t>(std::clamp(std::floor(centre - reach + 0.5), 0.0, last_place));
    const auto last =
        static_cast<int64_t>(std::clamp(std::ceil(centre + reach - 0.5) - 1.0, double(first), last_place));
    line.clear();
    double sum = 0.0;
    for (int64_t place = first; place <= last; ++place) {
      const double distance = std::abs(static_cast<double>(place) + 0.5 - centre) / reach;
      line.push_back(std::max(0.0, 1.0 - distance));
      sum += line.back();
    }
    if (sum <= 0.0) line.assign(1, sum = 1.0);
    taps.spans.push_back(
        {first, static_cast<int64_t>(line.size()), static_cast<int64_t>(taps.weights.size())});
    for (const double weight : line) taps.weights.push_back(static_cast<float>(weight / sum));
    taps.begin = std::min(taps.begin, first);
    taps.end = std::max(taps.end, first + static_cast<int64_t>(line.size()));
  }
  return taps;
}

float as_float(uint8_t value) { return static_cast<float>(value); }

// sums[i] = total of weight * row[i] over the rows of a span. Four rows at a time, so that the sums are
// loaded and stored less often.
void mix_rows(const uint8_t* rows, int64_t stride, const float* weights, int64_t count, int64_t size,
              float* __restrict sums) {
  std::fill_n(sums, size, 0.0F);
  int64_t k = 0;
  for (; k + 4 <= count; k += 4) {
    const float a = weights[k], b = weights[k + 1], c = weights[k + 2], d = weights[k + 3];
    const uint8_t* row = rows + k * stride;
    for (int64_t i = 0; i < size; ++i) {
      sums[i] += (a * as_float(row[i]) + b * as_float(row[i + stride])) +
                 (c * as_float(row[i + 2 * stride]) + d * as_float(row[i + 3 * stride]));
    }
  }
  for (; k < count; ++k) {
    const float weight = weights[k];
    const uint8_t* row = rows + k * stride;
    for (int64_t i = 0; i < size; ++i) sums[i] += weight * as_float(row[i]);
  }
}

uint8_t to_byte(float value) { return static_cast<uint8_t>(std::min(std::max(value + 0.5F, 0.0F), 255.0F)); }

// One output row from a mixed one that begins at place `taps.begin`. Lanes above kChannels are computed and
// dropped, so that a pixel is one vector.
template <int kChannels, int kLanes>
void mix_columns(const float* mixed, const Taps& taps, uint8_t* into) {
  for (const Taps::Span& span : taps.spans) {
    const float* from = mixed + (span.first - taps.begin) * kChannels;
    const float* weights = taps.weights.data() + span.offset;
    float sums[kLanes] = {};
    for (int64_t k = 0; k < span.count; ++k) {
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] += weights[k] * from[k * kChannels + lane];
    }
    for (int c = 0; c < kChannels; ++c) *into++ = to_byte(sums[c]);
  }
}

}  // namespace

Image resize(const Image& source, const Box& box, ImageSize size) {
  const Taps across = make_taps(box.left, box.width, source.width, size.width);
  const Taps down = make_taps(box.top, box.height, source.height, size.height);
  Image resized = blank_image(size.width, size.height, source.channels);
  const int64_t line = (across.end - across.begin) * source.channels;
  constexpr int64_t kSpare = 4;  // the last vector reads beyond the line
  std::vector<float> mixed(static_cast<size_t>(line + kSpare));
  for (int64_t y = 0; y < size.height; ++y) {
    const Taps::Span& span = down.spans[static_cast<size_t>(y)];
    mix_rows(source.row(span.first) + across.begin * source.channels, source.row_bytes(),
             down.weights.data() + span.offset, span.count, line, mixed.data());
    if (source.channels == 3) {
      mix_columns<3, 4>(mixed.data(), across, resized.row(y));
    } else {
      mix_columns<1, 1>(mixed.data(), across, resized.row(y));
    }
  }
  return resized;
}

}  // namespace renorm::data
