#include "data/strokes.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <map>
#include <system_error>
#include <vector>

#include "base/errors.h"
#include "base/random.h"
#include "base/text.h"
#include "data/stroke_drawing.h"
#include "data/strokes_blank.h"

namespace renorm::data {
namespace {

constexpr int64_t kMostImages = 1000000;  // a class
constexpr int64_t kMostBytes = int64_t{1} << 31;
constexpr int64_t kChunk = 64;  // images that a thread takes at a time
constexpr int kMostThreads = 256;

using Setter = std::function<void(const std::string& text, const std::string& what)>;

std::map<std::string, Setter> setters(StrokesOptions* options) {
  const auto integer = [](int64_t* field, int64_t least, int64_t greatest) {
    return [=](const std::string& text, const std::string& what) {
      *field = parse_integer(text, what, least, greatest);
    };
  };
  const auto number = [](double* field, double least, double greatest) {
    return [=](const std::string& text, const std::string& what) {
      *field = parse_number(text, what, least, greatest);
    };
  };
  return {
      {"classes", integer(&options->classes, 2, 100000)},
      {"train", integer(&options->train, 1, kMostImages)},
      {"test", integer(&options->test, 1, kMostImages)},
      {"size", integer(&options->size, 8, 256)},
      {"strokes", integer(&options->strokes, 1, 16)},
      {"ink", number(&options->ink, 0.0, 1.0)},
      {"noise", number(&options->noise, 0.0, 10.0)},
      {"jitter", number(&options->jitter, 0.0, 10.0)},
      {"seed",
       [options](const std::string& text, const std::string& what) {
         options->seed =
             static_cast<uint64_t>(parse_integer(text, what, 0, std::numeric_limits<int64_t>::max()));
       }},
  };
}

void check_total(const StrokesOptions& options) {
  // 1e5 x 2e6 x 65,536: below 2^63.
  const int64_t bytes = options.classes * (options.train + options.test) * options.size * options.size;
  if (bytes <= kMostBytes) return;
  throw UsageError(fmt::format(
      "strokes: {} classes of {} + {} images of {}x{} pixels take {:.1f} GiB, at most 2 are made; "
      "ask for fewer or smaller images",
      options.classes, options.train, options.test, options.size, options.size,
      static_cast<double>(bytes) / (1 << 30)));
}

// What the threads that draw one set share. Images are numbered: all of training, then all of test.
struct Work {
  const StrokesOptions& options;
  ByteDataset* data;
  int64_t total;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> done{0};
};

void paint_range(const Work& work, int64_t first, int64_t last, StrokePainter& painter) {
  int64_t shape_of = -1;
  std::vector<Stroke> shape;
  for (int64_t number = first; number < last; ++number) {
    const bool training = number < work.data->train.size();
    ByteImages& split = training ? work.data->train : work.data->test;
    const int64_t index = training ? number : number - work.data->train.size();
    const int64_t label = split.labels[static_cast<size_t>(index)];
    const int64_t of_label = index % (training ? work.options.train : work.options.test);
    if (label != shape_of) shape = stroke_class(work.options, label);
    shape_of = label;
    RandomStream stream(work.options.seed, training ? Purpose::kStrokeTrain : Purpose::kStrokeTest,
                        (static_cast<uint64_t>(label) << 32) + static_cast<uint64_t>(of_label));
    painter.paint(shape, stream, split.pixels.data() + index * split.image_bytes());
  }
}

template <typename Report>
void paint_share(Work& work, const Report& report) {
  StrokePainter painter(work.options);
  for (int64_t first = work.next.fetch_add(kChunk); first < work.total; first = work.next.fetch_add(kChunk)) {
    const int64_t last = std::min(first + kChunk, work.total);
    paint_range(work, first, last, painter);
    report(work.done += last - first);
  }
}

// Whoever leaves early, by an exception, takes the work from the others.
struct WorkGuard {
  Work& work;
  ~WorkGuard() { work.next = work.total; }
};

}  // namespace

StrokesOptions parse_strokes(const std::string& text) {
  StrokesOptions options;
  if (text.empty()) return options;
  const std::map<std::string, Setter> known = setters(&options);
  std::vector<std::string> names;
  names.reserve(known.size());
  for (const auto& entry : known) names.push_back(entry.first);
  for (const auto& [name, value] : parse_options(text, "strokes")) {
    const auto setter = known.find(name);
    if (setter == known.end()) {
      throw UsageError(
          fmt::format("strokes: unknown option '{}'{}", printable(name), name_hint(name, names)));
    }
    setter->second(value, "strokes: " + name);
  }
  check_total(options);
  return options;
}

std::string to_spec(const StrokesOptions& options) {
  return fmt::format(
      "strokes:classes={},train={},test={},size={},strokes={},ink={},noise={},jitter={},seed={}",
      options.classes, options.train, options.test, options.size, options.strokes, shortest(options.ink),
      shortest(options.noise), shortest(options.jitter), options.seed);
}

ByteDataset generate_strokes(const StrokesOptions& options, int threads,
                             const std::function<void(int64_t, int64_t)>& progress) {
  ByteDataset data = blank_strokes(options);
  Work work{options, &data, data.train.size() + data.test.size()};
  std::vector<std::future<void>> helpers;  // their destructors wait
  const WorkGuard guard{work};
  for (int i = 1; i < std::min(threads, kMostThreads); ++i) {
    try {
      helpers.push_back(std::async(std::launch::async, [&work] { paint_share(work, [](int64_t) {}); }));
    } catch (const std::system_error&) {
      break;  // no more threads to be had: fewer do as well
    }
  }
  paint_share(work, [&](int64_t done) { progress(done, work.total); });
  for (std::future<void>& helper : helpers) helper.get();
  progress(work.total, work.total);
  return data;
}

}  // namespace renorm::data
