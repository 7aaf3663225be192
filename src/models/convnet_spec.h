// The text form of a plain convolutional net.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace renorm::models {

struct ConvnetItem {
  enum class Kind { kConvolution, kMaxPool, kAveragePool, kGlobalPool, kFlat };
  Kind kind = Kind::kConvolution;
  int64_t channels = 0;  // this and the next two: of convolutions only
  int64_t stride = 1;
  std::array<int64_t, 2> kernel = {3, 3};  // height, width
  std::string place;                       // for messages: "convnet: item 2 '5x5:32/2'"
};

// The syntax of a spec, as a few lines of help.
std::string convnet_syntax();

// The spec of a bare "convnet": 8 normalized layers.
std::string convnet_recipe();

// Parses the part after "convnet:". The result has exactly one global pool or flat item, a pool at the end if
// the text has neither. Layers after it are dense. Throws UsageError with the number and text of the item.
std::vector<ConvnetItem> parse_convnet(const std::string& spec);

// The spec of a bare "mlp", and the items of "mlp:WIDTH,WIDTH,...": a flat item and dense layers. Throws
// UsageError.
std::string mlp_recipe();
std::vector<ConvnetItem> parse_mlp(const std::string& spec);

struct MapShape {
  int64_t channels;
  int64_t height;
  int64_t width;
};

// The shape after each item, for an input of 1 to 65,536 channels, rows and columns. Throws UsageError with
// the item at which the image vanishes or the number of weights exceeds its limit.
std::vector<MapShape> convnet_shapes(const std::vector<ConvnetItem>& items, MapShape input);

}  // namespace renorm::models
