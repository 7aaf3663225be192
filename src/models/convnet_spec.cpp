#include "models/convnet_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "base/text.h"

namespace renorm::models {
namespace {

using Kind = ConvnetItem::Kind;

constexpr int64_t kMaxItems = 1000;
constexpr int64_t kMaxChannels = 65536;
constexpr int64_t kMaxStride = 8;
constexpr int64_t kMaxKernel = 15;
constexpr int64_t kMaxWeights = int64_t{1} << 30;

struct Word {
  const char* text;
  Kind kind;
};
constexpr Word kWords[] = {
    {"max", Kind::kMaxPool}, {"avg", Kind::kAveragePool}, {"pool", Kind::kGlobalPool}, {"flat", Kind::kFlat}};

// Whether one pixel is left, so that the layers after the item are dense.
bool ends_image(const ConvnetItem& item) {
  return item.kind == Kind::kGlobalPool || item.kind == Kind::kFlat;
}

void check_items(const char* model, const std::string& spec) {
  const auto items = std::count(spec.begin(), spec.end(), ',') + 1;
  if (items <= kMaxItems) return;
  throw UsageError(fmt::format("{}: the spec must have at most {} items, got {}", model, kMaxItems, items));
}

// nullptr: none.
const Word* find_word(const std::string& text) {
  const Word* word =
      std::find_if(std::begin(kWords), std::end(kWords), [&](const Word& w) { return text == w.text; });
  return word == std::end(kWords) ? nullptr : word;
}

ConvnetItem item_of(Kind kind, std::string place) {
  ConvnetItem item;
  item.kind = kind;
  item.place = std::move(place);
  return item;
}

std::string unknown_word(const std::string& where, const std::string& text) {
  std::vector<std::string> names;
  for (const Word& word : kWords) names.emplace_back(word.text);
  const std::string near = nearest_name(text, names);
  return fmt::format("{} is not CHANNELS[/STRIDE], KxK:CHANNELS[/STRIDE], max, avg, pool or flat{}", where,
                     near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

int64_t parse_side(const std::string& text, const std::string& where) {
  const std::string what = where + ": each side of the kernel";
  const int64_t side = parse_integer(text, what, 1, kMaxKernel);
  if (side % 2 == 0) throw UsageError(fmt::format("{} must be odd, got {}", what, side));
  return side;
}

std::array<int64_t, 2> parse_kernel(const std::string& text, const std::string& where) {
  const std::vector<std::string> sides = split(text, 'x');
  if (sides.size() != 2) {
    throw UsageError(fmt::format("{}: the kernel before ':' must be HEIGHTxWIDTH such as 5x5, got '{}'",
                                 where, printable(text)));
  }
  return {parse_side(sides[0], where), parse_side(sides[1], where)};
}

void parse_convolution(std::string text, ConvnetItem* item) {
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    item->kernel = parse_kernel(text.substr(0, colon), item->place);
    text = text.substr(colon + 1);
  }
  const size_t slash = text.find('/');
  if (slash != std::string::npos) {
    item->stride = parse_integer(text.substr(slash + 1), item->place + ": the stride", 1, kMaxStride);
    text = text.substr(0, slash);
  }
  item->channels = parse_integer(text, item->place + ": the number of channels", 1, kMaxChannels);
}

// `items` are those before it.
ConvnetItem parse_item(const std::string& text, const std::vector<ConvnetItem>& items) {
  const size_t number = items.size() + 1;
  if (text.empty()) {
    throw UsageError(
        fmt::format("convnet: item {} is empty; expected a list such as 16/2,32,max,64,pool,128", number));
  }
  const std::string place = fmt::format("convnet: item {} '{}'", number, printable(text));
  const bool is_dense = std::any_of(items.begin(), items.end(), ends_image);
  if (const Word* word = find_word(text)) {
    if (is_dense) {
      throw UsageError(place + " comes after 'pool' or 'flat', which leaves one pixel; remove one of them");
    }
    return item_of(word->kind, place);
  }
  if (text[0] < '0' || text[0] > '9') throw UsageError(unknown_word(place, text));
  ConvnetItem item = item_of(Kind::kConvolution, place);
  if (is_dense) item.kernel = {1, 1};
  parse_convolution(text, &item);
  return item;
}

MapShape after(const ConvnetItem& item, const MapShape& in) {
  switch (item.kind) {
    case Kind::kConvolution:
      return {item.channels, (in.height - 1) / item.stride + 1, (in.width - 1) / item.stride + 1};
    case Kind::kMaxPool:
    case Kind::kAveragePool:
      return {in.channels, in.height / 2, in.width / 2};
    case Kind::kGlobalPool:
      return {in.channels, 1, 1};
    case Kind::kFlat:
      break;
  }
  return {in.channels * in.height * in.width, 1, 1};
}

}  // namespace

std::string convnet_syntax() {
  return fmt::format(
      "SPEC is a list of items separated by commas, at most {}:\n"
      "  CHANNELS[/STRIDE]       3x3 convolution, norm and ReLU: 32 or 16/2; dense after pool or flat\n"
      "  HxW:CHANNELS[/STRIDE]   the same with another kernel, height x width, odd sides up to {}: 5x5:32/2\n"
      "  max, avg                2x2 pooling of stride 2\n"
      "  pool                    mean over the whole image; at the end unless pool or flat is in the list\n"
      "  flat                    all pixels of all channels as one vector; dense layers follow\n"
      "A linear classifier follows. `convnet` alone is convnet:{}\n",
      kMaxItems, kMaxKernel, convnet_recipe());
}

std::string convnet_recipe() { return "16/2,32/2,32,64/2,64,64,pool,128,128"; }

std::vector<ConvnetItem> parse_convnet(const std::string& spec) {
  check_items("convnet", spec);
  std::vector<ConvnetItem> items;
  for (const std::string& text : split(spec, ',')) items.push_back(parse_item(text, items));
  if (std::none_of(items.begin(), items.end(), ends_image)) {
    items.push_back(item_of(Kind::kGlobalPool, "convnet: 'pool' at the end"));
  }
  return items;
}

std::string mlp_recipe() { return "512,512,512"; }

std::vector<ConvnetItem> parse_mlp(const std::string& spec) {
  check_items("mlp", spec);
  std::vector<ConvnetItem> items = {item_of(Kind::kFlat, "mlp: the input")};
  for (const std::string& text : split(spec, ',')) {
    const std::string place = fmt::format("mlp: width {}", items.size());
    ConvnetItem item = item_of(Kind::kConvolution, place);
    item.kernel = {1, 1};
    item.channels = parse_integer(text, place, 1, kMaxChannels);
    items.push_back(item);
  }
  return items;
}

std::vector<MapShape> convnet_shapes(const std::vector<ConvnetItem>& items, MapShape input) {
  std::vector<MapShape> shapes;
  MapShape shape = input;
  int64_t weights = 0;
  for (const ConvnetItem& item : items) {
    const MapShape next = after(item, shape);
    if (next.height < 1 || next.width < 1) {
      throw UsageError(
          fmt::format("{} cannot halve an image of {}x{} pixels ({}x{} at the input); "
                      "use fewer pools or strides, or larger images",
                      item.place, shape.height, shape.width, input.height, input.width));
    }
    if (item.kind == Kind::kConvolution) {
      weights += shape.channels * item.channels * item.kernel[0] * item.kernel[1];
    }
    if (item.kind == Kind::kFlat && next.channels > kMaxWeights) {
      throw UsageError(fmt::format("{} has {} values, at most {} are allowed; use smaller images", item.place,
                                   next.channels, kMaxWeights));
    }
    if (weights > kMaxWeights) {
      throw UsageError(
          fmt::format("{} brings the net to {} weights, at most {} are allowed; use fewer channels",
                      item.place, weights, kMaxWeights));
    }
    shapes.push_back(next);
    shape = next;
  }
  return shapes;
}

}  // namespace renorm::models
