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

// FOLDER/NAME, or FOLDER/NAME.gz unpacked if there is no plain file. Throws MissingInputError if there is
// neither, DataError for more than kMaxFileBytes, or more than `max_bytes` when unpacked.
NamedBytes read_plain_or_gz(const std::string& folder, const std::string& name, const MaxBytes& max_bytes);

}  // namespace renorm::data
