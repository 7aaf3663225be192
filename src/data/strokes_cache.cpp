// A cache file: a line with the version, a line with the spec, the pixels, then the SHA-256 of all before.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <stdexcept>

#include "base/checksum.h"
#include "base/files.h"
#include "data/strokes.h"
#include "data/strokes_blank.h"

namespace renorm::data {
namespace {

// Goes up whenever the generator draws something else for the same spec.
constexpr int kGeneratorVersion = 1;
constexpr size_t kDigestBytes = 64;
constexpr size_t kNameDigits = 16;

std::string header_of(const StrokesOptions& options) {
  return fmt::format("renorm strokes {}\n{}\n", kGeneratorVersion, to_spec(options));
}

std::string encode(const StrokesOptions& options, const ByteDataset& data) {
  std::string text = header_of(options);
  text.reserve(text.size() + data.train.pixels.size() + data.test.pixels.size() + kDigestBytes);
  text.append(data.train.pixels.begin(), data.train.pixels.end());
  text.append(data.test.pixels.begin(), data.test.pixels.end());
  text += sha256(text);
  return text;
}

// Nothing unless it is whole, of this version and of this spec.
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

std::optional<ByteDataset> read_cache(const StrokesOptions& options, const std::string& path) {
  try {
    const int64_t pixels = options.classes * (options.train + options.test) * options.size * options.size;
    const int64_t rest = static_cast<int64_t>(header_of(options).size() + kDigestBytes);
    return decode(options, read_file(path, pixels + rest));
  } catch (const std::runtime_error&) {
    return std::nullopt;  // absent or unreadable: it can be made again
  }
}

void write_cache(const StrokesOptions& options, const ByteDataset& data, const std::string& folder,
                 const std::string& path) {
  try {
    make_writable_folder(folder);
    write_atomically(path, encode(options, data));
  } catch (const std::runtime_error&) {
    return;  // the data are there, only the next start takes longer
  }
}

}  // namespace

std::string strokes_cache_file(const StrokesOptions& options, const std::string& folder) {
  const std::string name =
      fmt::format("strokes-{}x{}+{}-{}px-{}.bin", options.classes, options.train, options.test, options.size,
                  sha256(header_of(options)).substr(0, kNameDigits));
  return (std::filesystem::path(folder) / name).string();
}

ByteDataset cached_strokes(const StrokesOptions& options, const std::string& folder, int threads,
                           const std::function<void(int64_t, int64_t)>& progress) {
  const std::string path = strokes_cache_file(options, folder);
  if (std::optional<ByteDataset> cached = read_cache(options, path)) return std::move(*cached);
  ByteDataset data = generate_strokes(options, threads, progress);
  write_cache(options, data, folder, path);
  return data;
}

}  // namespace renorm::data
