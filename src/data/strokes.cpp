#include "data/strokes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/foreign_folder.h"
#include "base/private_folder.h"
#include "base/random.h"
#include "base/text.h"
#include "data/parallel.h"
#include "data/stroke_drawing.h"
#include "data/stroke_overlay.h"

namespace renorm::data {
namespace {

constexpr int64_t kMaxImages = 1000000;  // per class
constexpr int64_t kMaxBytes = int64_t{1} << 31;
constexpr int64_t kImagesPerTask = 64;
// Goes up whenever the generator draws something else for the same spec.
constexpr int kGeneratorVersion = 1;
constexpr size_t kDigestBytes = 64;
constexpr size_t kNameDigits = 16;

// A key of the spec with its field.
struct Option {
  const char* name;
  std::function<void(const std::string& text, const std::string& what, StrokesOptions* options)> parse;
  std::function<std::string(const StrokesOptions& options)> text;
};

template <typename Integer>
Option integer(const char* name, Integer StrokesOptions::*field, int64_t min, int64_t max) {
  return {name,
          [=](const std::string& text, const std::string& what, StrokesOptions* options) {
            options->*field = static_cast<Integer>(parse_integer(text, what, min, max));
          },
          [=](const StrokesOptions& options) { return std::to_string(options.*field); }};
}

Option number(const char* name, double StrokesOptions::*field, double min, double max) {
  return {name,
          [=](const std::string& text, const std::string& what, StrokesOptions* options) {
            options->*field = parse_number(text, what, min, max);
          },
          [=](const StrokesOptions& options) { return shortest(options.*field); }};
}

// In the order of the full spec, which is part of cache files and checkpoints.
const std::vector<Option>& option_table() {
  using O = StrokesOptions;
  static const std::vector<Option> table{
      integer("classes", &O::classes, 2, 100000),
      integer("train", &O::train, 1, kMaxImages),
      integer("test", &O::test, 1, kMaxImages),
      integer("size", &O::size, 8, 256),
      integer("strokes", &O::strokes, 1, 16),
      number("ink", &O::ink, 0.0, 1.0),
      number("noise", &O::noise, 0.0, 10.0),
      number("jitter", &O::jitter, 0.0, 10.0),
      integer("seed", &O::seed, 0, std::numeric_limits<int64_t>::max()),
      number("decoy", &O::decoy, 0.0, 1.0),
      number("decoy-ink", &O::decoy_ink, 0.0, 10.0),
      number("amplitude", &O::amplitude, 0.0, 1.0),
  };
  return table;
}

// Those of plain images come first: specs in cache files and checkpoints end with them.
constexpr size_t kPlainOptions = 9;

std::string options_text(const StrokesOptions& options, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const Option& option = option_table()[i];
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", option.name, option.text(options));
  }
  return text;
}

const Option& option_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Option& option : option_table()) {
    if (option.name == name) return option;
    names.emplace_back(option.name);
  }
  throw UsageError("strokes: " + unknown_name("option", name, names));
}

void check_total(const StrokesOptions& options) {
  // 1e5 x 2e6 x 65,536: below 2^63.
  const int64_t bytes = options.classes * (options.train + options.test) * options.size * options.size;
  if (bytes <= kMaxBytes) return;
  throw UsageError(
      fmt::format("strokes: {} classes of {} + {} images of {}x{} pixels take {:.1f} GiB, the maximum is 2; "
                  "use fewer or smaller images",
                  options.classes, options.train, options.test, options.size, options.size,
                  static_cast<double>(bytes) / (1 << 30)));
}

// Paints images [first, last), numbered through all of training, then all of test.
void paint_range(const StrokesOptions& options, int64_t first, int64_t last, ByteDataset* data) {
  StrokePainter painter(options);
  int64_t shape_of = -1;
  std::vector<Stroke> shape;
  for (int64_t number = first; number < last; ++number) {
    const bool training = number < data->train.size();
    ByteImages& split = training ? data->train : data->test;
    const int64_t index = training ? number : number - data->train.size();
    const int64_t label = split.labels[static_cast<size_t>(index)];
    const int64_t of_label = index % (training ? options.train : options.test);
    if (label != shape_of) shape = stroke_class(options, label);
    shape_of = label;
    RandomStream stream(options.seed, training ? Purpose::kStrokeTrain : Purpose::kStrokeTest,
                        (static_cast<uint64_t>(label) << 32) + static_cast<uint64_t>(of_label));
    painter.paint(shape, stream, split.pixels.data() + index * split.image_bytes());
  }
}

ByteImages blank_images(const StrokesOptions& options, int64_t of_label) {
  ByteImages images;
  images.channels = 1;
  images.height = options.size;
  images.width = options.size;
  images.pixels.resize(static_cast<size_t>(options.classes * of_label * images.image_bytes()));
  images.labels.reserve(static_cast<size_t>(options.classes * of_label));
  for (int64_t label = 0; label < options.classes; ++label) {
    images.labels.insert(images.labels.end(), static_cast<size_t>(of_label), label);
  }
  return images;
}

// The set before anything is drawn: names, labels and sizes in place, class after class.
ByteDataset blank_strokes(const StrokesOptions& options) {
  ByteDataset data;
  data.name = to_spec(options);
  data.full_name = data.name;
  for (int64_t label = 0; label < options.classes; ++label) {
    data.classes.push_back(fmt::format("class-{:03}", label));
  }
  data.train = blank_images(options, options.train);
  data.test = blank_images(options, options.test);
  return data;
}

// A cache file holds this header, the pixels and the SHA-256 of both.
std::string header_of(const StrokesOptions& options) {
  return fmt::format("renorm strokes {}\n{}\n", kGeneratorVersion, to_spec(options));
}

std::string cache_name(const StrokesOptions& options) {
  return fmt::format("strokes-{}x{}+{}-{}px-{}.bin", options.classes, options.train, options.test,
                     options.size, sha256(header_of(options)).substr(0, kNameDigits));
}

std::string encode(const StrokesOptions& options, const ByteDataset& data) {
  std::string text = header_of(options);
  text.reserve(text.size() + data.train.pixels.size() + data.test.pixels.size() + kDigestBytes);
  text.append(data.train.pixels.begin(), data.train.pixels.end());
  text.append(data.test.pixels.begin(), data.test.pixels.end());
  text += sha256(text);
  return text;
}

// Nothing unless the file is whole, of this version and of this spec.
std::optional<ByteDataset> decode(const StrokesOptions& options, std::string text) {
  const std::string header = header_of(options);
  ByteDataset data = blank_strokes(options);
  const size_t train = data.train.pixels.size(), test = data.test.pixels.size();
  if (text.size() != header.size() + train + test + kDigestBytes) return std::nullopt;
  if (text.compare(0, header.size(), header) != 0) return std::nullopt;
  const std::string digest = text.substr(text.size() - kDigestBytes);
  text.resize(text.size() - kDigestBytes);
  if (sha256(text) != digest) return std::nullopt;
  const char* pixels = text.data() + header.size();
  std::copy_n(pixels, train, data.train.pixels.begin());
  std::copy_n(pixels + train, test, data.test.pixels.begin());
  return data;
}

// Nothing from a folder in which somebody else may have put the file.
std::optional<ByteDataset> read_cache(const StrokesOptions& options, const std::string& folder) {
  if (!private_folder_problem(folder).empty()) return std::nullopt;
  try {
    const int64_t pixels = options.classes * (options.train + options.test) * options.size * options.size;
    const int64_t rest = static_cast<int64_t>(header_of(options).size() + kDigestBytes);
    return decode(options, read_file_inside(folder, cache_name(options), pixels + rest));
  } catch (const std::runtime_error&) {
    return std::nullopt;  // absent or unreadable: it can be made again
  }
}

void write_cache(const StrokesOptions& options, const ByteDataset& data, const std::string& folder) {
  try {
    make_private_folder(folder);
    write_atomically(strokes_cache_file(options, folder), encode(options, data), Links::kReplace);
  } catch (const std::runtime_error&) {
    return;  // the data set is complete, only the next start takes longer
  }
}

ByteDataset composed(const StrokesOptions& options, ByteDataset characters) {
  const auto train = std::make_shared<StrokeOverlay>(options, std::move(characters.train));
  ByteDataset data;
  data.name = to_spec(options);
  data.full_name = data.name;
  data.classes = std::move(characters.classes);
  data.train = train->paint_all(Purpose::kOverlayTrain);
  data.test = StrokeOverlay(options, std::move(characters.test)).paint_all(Purpose::kOverlayTest);
  data.paint_anew = [train](int64_t index, RandomStream& stream, uint8_t* pixels) {
    train->paint(index, stream, pixels);
  };
  return data;
}

}  // namespace

StrokesOptions characters_of(StrokesOptions options) {
  options.noise = 0.0;
  options.decoy = 0.0;
  options.amplitude = 0.0;
  return options;
}

StrokesOptions parse_strokes(const std::string& text) {
  StrokesOptions options;
  for (const auto& [name, value] : parse_options(text, "strokes")) {
    option_named(name).parse(value, "strokes: " + name, &options);
  }
  check_total(options);
  return options;
}

std::optional<StrokesOptions> strokes_of_spec(const std::string& spec) {
  const auto [name, rest] = split_spec(spec);
  if (name != "strokes") return std::nullopt;
  return parse_strokes(rest);
}

std::string to_spec(const StrokesOptions& options) {
  const size_t count = options.is_composed() ? option_table().size() : kPlainOptions;
  return "strokes:" + options_text(options, count);
}

std::string strokes_usage() { return fmt::format("strokes[:{}]", options_text({}, option_table().size())); }

ByteDataset generate_strokes(const StrokesOptions& options, int threads,
                             const std::function<void(int64_t, int64_t)>& progress) {
  if (options.is_composed()) {
    return composed(options, generate_strokes(characters_of(options), threads, progress));
  }
  ByteDataset data = blank_strokes(options);
  const int64_t total = data.train.size() + data.test.size();
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int64_t> done{0};
  for_each_number((total + kImagesPerTask - 1) / kImagesPerTask, threads, [&](int64_t task) {
    const int64_t first = task * kImagesPerTask, last = std::min(first + kImagesPerTask, total);
    paint_range(options, first, last, &data);
    const int64_t now = done += last - first;
    if (std::this_thread::get_id() == caller) progress(now, total);
  });
  progress(total, total);
  return data;
}

std::string strokes_cache_file(const StrokesOptions& options, const std::string& folder) {
  return (std::filesystem::path(folder) / cache_name(options)).string();
}

ByteDataset cached_strokes(const StrokesOptions& options, const std::string& folder, int threads,
                           const std::function<void(int64_t, int64_t)>& progress) {
  if (options.is_composed()) {
    return composed(options, cached_strokes(characters_of(options), folder, threads, progress));
  }
  if (std::optional<ByteDataset> cached = read_cache(options, folder)) return std::move(*cached);
  ByteDataset data = generate_strokes(options, threads, progress);
  write_cache(options, data, folder);
  return data;
}

}  // namespace renorm::data
