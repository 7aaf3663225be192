// Files of a data set, plain or packed by gzip.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace renorm::data {

// The maximum size of one file of a data set, unpacked.
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;

// The unpacked content of a gzip file; several packed parts one after the other count as one. Throws
// DataError if it is damaged, cut short, followed by something else, or holds more than `limit` bytes. Never
// takes more memory than that.
std::string gunzip(const std::string& bytes, const std::string& file, int64_t limit);

// Its first `count` bytes, or all if there are fewer. Throws DataError if they are damaged or cut short.
std::string gunzip_start(const std::string& bytes, const std::string& file, size_t count);

struct NamedBytes {
  std::string file;  // the path that was read
  std::string bytes;
};

// Throws MissingInputError unless `folder` is one.
void check_data_folder(const std::string& folder);

// How many bytes a file may have at most, by its first kStartBytes bytes. Throws DataError for a wrong start.
using MaxBytes = std::function<int64_t(const std::string& start, const std::string& file)>;
constexpr size_t kStartBytes = 16;

// A packed file of a stranger may state any size and hold as many equal bytes, which take a 1032th part of
// it. Images of MNIST shrink to a fifth, those of 256 x 256 pixels with a single line to an 85th.
constexpr int64_t kMaxImagesRatio = 200;
// Labels in random order shrink to about a half. Those that are sorted shrink as far as possible, but seldom
// have more than kAlwaysUnpacked bytes.
constexpr int64_t kMaxLabelsRatio = 16;
constexpr int64_t kAlwaysUnpacked = int64_t{4} << 20;

// FOLDER/NAME, or FOLDER/NAME.gz unpacked if there is no plain file. Throws MissingInputError if there is
// neither, DataError for more than kMaxFileBytes, or more than `max_bytes` or max_ratio x its packed size +
// kAlwaysUnpacked when unpacked.
NamedBytes read_plain_or_gz(const std::string& folder, const std::string& name, const MaxBytes& max_bytes,
                            int64_t max_ratio = kMaxImagesRatio);

}  // namespace renorm::data
