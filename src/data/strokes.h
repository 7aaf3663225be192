// Drawn characters, generated: the built-in data set. A spec gives the same bits on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "data/byte_images.h"

namespace renorm::data {

// A class is `strokes` random quadratic Bezier curves. A sample moves their control points, distorts the
// whole, varies thickness and ink and adds noise. With `decoy` or `amplitude` an image is composed of such
// samples (stroke_overlay.h): a training image anew for each draw, from `train` characters per class, and a
// test image once. Values are kept as bytes: byte = round((value + 0.5) *
// 127.5), so that noise below 0 and above 1 survives. Image k of class c is the same whatever `classes`,
// `train` and `test` are: a larger set contains the smaller one.
struct StrokesOptions {
  int64_t classes = 200;   // 2 .. 100,000
  int64_t train = 100;     // images per class, 1 .. 1,000,000
  int64_t test = 20;       // images per class, 1 .. 1,000,000
  int64_t size = 20;       // pixels per side, 8 .. 256
  int64_t strokes = 3;     // 1 .. 16
  double ink = 0.6;        // of the palest sample, 0 .. 1; a low value mixes easy and hard samples
  double noise = 0.1;      // standard deviation of pixel noise, 0 .. 10
  double jitter = 1.0;     // factor on all distortions of a sample, 0 .. 10
  uint64_t seed = 1;       // 0 .. 2^63 - 1
  double decoy = 0.0;      // share of images with a character of another class, 0 .. 1
  double decoy_ink = 0.9;  // factor on the ink of that character, 0 .. 10
  double amplitude = 0.0;  // spread of the ink of both characters, 0 .. 1

  bool is_composed() const { return decoy > 0.0 || amplitude > 0.0; }
};

// "classes=200,train=100,..." after the name; every field above is a key. Throws UsageError, also for a set
// of more than 2 GiB.
StrokesOptions parse_strokes(const std::string& options);
// The options of "strokes[:OPTIONS]"; nothing for a spec with another name. Throws UsageError.
std::optional<StrokesOptions> strokes_of_spec(const std::string& spec);
// The full spec, name and all keys in a fixed order: "strokes:classes=200,...". The last three keys are part
// of it only if the images are composed.
std::string to_spec(const StrokesOptions& options);
// "strokes[:classes=200,...]" with every key and its default.
std::string strokes_usage();

// The options of the characters that images are composed of.
StrokesOptions characters_of(StrokesOptions options);

// Calls progress(done, total), in images, on the calling thread now and then. The result does not depend on
// `threads`.
ByteDataset generate_strokes(const StrokesOptions& options, int threads,
                             const std::function<void(int64_t, int64_t)>& progress);

// Read from the cache, or generated and written to it. A damaged cache file is replaced; two processes that
// start at once both get the right data; a cache that cannot be written is no error. The folder is made for
// the user alone. A folder that is not private (private_folder.h) is not used.
ByteDataset cached_strokes(const StrokesOptions& options, const std::string& folder, int threads,
                           const std::function<void(int64_t, int64_t)>& progress);
// The file in `folder` that holds the set.
std::string strokes_cache_file(const StrokesOptions& options, const std::string& folder);

}  // namespace renorm::data
