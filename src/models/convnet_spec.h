// The textual description of a plain convolutional net. No torch.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace renorm::models {

struct ConvnetItem {
  enum class Kind { kConvolution, kMaxPool, kAveragePool, kGlobalPool };
  Kind kind = Kind::kConvolution;
  int64_t channels = 0;  // these three of a convolution only
  int64_t stride = 1;
  std::array<int64_t, 2> kernel = {3, 3};  // height, width
  std::string text;                        // as it was written
};

// What a spec may say, in a few lines for people.
std::string convnet_syntax();

// The net of 8 normalised layers that a bare "convnet" means.
std::string convnet_recipe();

// Reads what follows "convnet:". The list always contains exactly one global pool; it is added at the end if
// the text has none. Throws UsageError that names the item by number and text.
std::vector<ConvnetItem> parse_convnet(const std::string& spec);

struct MapShape {
  int64_t channels;
  int64_t height;
  int64_t width;
};

// The shape after each item for an input of 1 to 65,536 channels, rows and columns. Throws UsageError that
// names the item at which nothing is left of the image or the weights become too many to be meant.
std::vector<MapShape> convnet_shapes(const std::vector<ConvnetItem>& items, MapShape input);

}  // namespace renorm::models
