#include "models/convnet_spec.h"

#include <fmt/format.h>

#include <algorithm>

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
constexpr Word kWords[] = {{"max", Kind::kMaxPool}, {"avg", Kind::kAveragePool}, {"pool", Kind::kGlobalPool}};

std::string place(int64_t number, const std::string& text) {
  return fmt::format("convnet: item {} '{}'", number, printable(text));
}

std::string unknown_word(const std::string& where, const std::string& text) {
  std::vector<std::string> names;
  for (const Word& word : kWords) names.emplace_back(word.text);
  const std::string near = nearest_name(text, names);
  return fmt::format("{} is not CHANNELS[/STRIDE], KxK:CHANNELS[/STRIDE], max, avg or pool{}", where,
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

void parse_convolution(const std::string& where, ConvnetItem* item) {
  std::string rest = item->text;
  const size_t colon = rest.find(':');
  if (colon != std::string::npos) {
    item->kernel = parse_kernel(rest.substr(0, colon), where);
    rest = rest.substr(colon + 1);
  }
  const size_t slash = rest.find('/');
  if (slash != std::string::npos) {
    item->stride = parse_integer(rest.substr(slash + 1), where + ": the stride", 1, kMaxStride);
    rest = rest.substr(0, slash);
  }
  item->channels = parse_integer(rest, where + ": the number of channels", 1, kMaxChannels);
}

ConvnetItem parse_item(const std::string& text, int64_t number, bool after_pool) {
  const std::string where = place(number, text);
  if (text.empty()) {
    throw UsageError(
        fmt::format("convnet: item {} is empty; expected a list such as 16/2,32,max,64,pool,128", number));
  }
  ConvnetItem item;
  item.text = text;
  const auto word =
      std::find_if(std::begin(kWords), std::end(kWords), [&](const Word& w) { return text == w.text; });
  if (word != std::end(kWords)) {
    if (after_pool) {
      throw UsageError(where + " comes after 'pool', which leaves one pixel; remove one of them");
    }
    item.kind = word->kind;
    return item;
  }
  if (text[0] < '0' || text[0] > '9') throw UsageError(unknown_word(where, text));
  if (after_pool) item.kernel = {1, 1};
  parse_convolution(where, &item);
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
      break;
  }
  return {in.channels, 1, 1};
}

}  // namespace

std::string convnet_syntax() {
  return fmt::format(
      "SPEC is a list of items separated by commas, at most {}:\n"
      "  CHANNELS[/STRIDE]       3x3 convolution, norm and ReLU: 32 or 16/2; 1x1 after pool\n"
      "  HxW:CHANNELS[/STRIDE]   the same with another kernel, height x width, odd sides up to {}: 5x5:32/2\n"
      "  max, avg                2x2 pooling of stride 2\n"
      "  pool                    mean over the whole image; at the end if it is not in the list\n"
      "A linear classifier follows. `convnet` alone is convnet:{}\n",
      kMaxItems, kMaxKernel, convnet_recipe());
}

std::string convnet_recipe() { return "16/2,32/2,32,64/2,64,64,pool,128,128"; }

std::vector<ConvnetItem> parse_convnet(const std::string& spec) {
  const auto commas = std::count(spec.begin(), spec.end(), ',');
  if (commas >= kMaxItems) {
    throw UsageError(
        fmt::format("convnet: the spec must have at most {} items, got {}", kMaxItems, commas + 1));
  }
  std::vector<ConvnetItem> items;
  bool pooled = false;
  for (const std::string& text : split(spec, ',')) {
    items.push_back(parse_item(text, static_cast<int64_t>(items.size()) + 1, pooled));
    pooled = pooled || items.back().kind == Kind::kGlobalPool;
  }
  if (!pooled) {
    ConvnetItem pool;
    pool.kind = Kind::kGlobalPool;
    pool.text = "pool";
    items.push_back(pool);
  }
  return items;
}

std::vector<MapShape> convnet_shapes(const std::vector<ConvnetItem>& items, MapShape input) {
  std::vector<MapShape> shapes;
  MapShape shape = input;
  int64_t weights = 0;
  for (const ConvnetItem& item : items) {
    const auto number = static_cast<int64_t>(shapes.size()) + 1;
    const MapShape next = after(item, shape);
    if (next.height < 1 || next.width < 1) {
      throw UsageError(
          fmt::format("{} cannot halve an image of {}x{} pixels ({}x{} at the input); "
                      "use fewer pools or strides, or larger images",
                      place(number, item.text), shape.height, shape.width, input.height, input.width));
    }
    if (item.kind == Kind::kConvolution) {
      weights += shape.channels * item.channels * item.kernel[0] * item.kernel[1];
    }
    if (weights > kMaxWeights) {
      throw UsageError(
          fmt::format("{} brings the net to {} weights, at most {} are allowed; use fewer channels",
                      place(number, item.text), weights, kMaxWeights));
    }
    shapes.push_back(next);
    shape = next;
  }
  return shapes;
}

}  // namespace renorm::models
