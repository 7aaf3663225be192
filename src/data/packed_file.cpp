#include "data/packed_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <new>
#include <vector>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"

namespace renorm::data {
namespace {

constexpr int kGzipOnly = 16;  // added to the window bits: no zlib or raw streams
constexpr size_t kPieceBytes = size_t{1} << 16;
constexpr size_t kMaxRatio = 1032;           // of the format: 258 bytes take at least two bits
constexpr size_t kMaxFed = size_t{1} << 30;  // zlib counts in 32 bits

class Inflater {
 public:
  explicit Inflater(const std::string& bytes) : bytes_(bytes) {
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Unpacks at most `room` bytes into `piece`; returns zlib's status and sets *made.
  int inflate_into(char* piece, size_t room, size_t* made) {
    if (stream_.avail_in == 0) feed();
    stream_.next_out = reinterpret_cast<Bytef*>(piece);
    stream_.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    *made = room - stream_.avail_out;
    return status;
  }

  size_t position() const { return fed_ - stream_.avail_in; }
  void next_part() { inflateReset(&stream_); }

 private:
  void feed() {
    const size_t count = std::min(bytes_.size() - fed_, kMaxFed);
    // zlib does not write to its input, although the pointer is not const.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes_.data() + fed_));
    stream_.avail_in = static_cast<uInt>(count);
    fed_ += count;
  }

  const std::string& bytes_;
  z_stream stream_{};
  size_t fed_ = 0;
};

bool starts_like_gzip(const std::string& bytes, size_t at) { return bytes.compare(at, 2, "\x1f\x8b") == 0; }

[[noreturn]] void refuse(const std::string& file, const std::string& bytes, size_t position, int status) {
  if (!bytes.empty() && !starts_like_gzip(bytes, 0)) {
    throw DataError(fmt::format(
        "{}: not gzip data; if the file is already unpacked, take the .gz off its name", printable(file)));
  }
  if (status == Z_BUF_ERROR) {
    throw DataError(fmt::format("{}: the gzip data are cut short after {} bytes; fetch the file again",
                                printable(file), bytes.size()));
  }
  throw DataError(fmt::format("{}: the gzip data are damaged near byte {}; fetch the file again",
                              printable(file), position));
}

}  // namespace

std::string gunzip(const std::string& bytes, const std::string& file, int64_t limit) {
  Inflater inflater(bytes);
  std::string unpacked;
  std::vector<char> piece(kPieceBytes);
  const size_t max = static_cast<size_t>(std::max<int64_t>(limit, 0));
  // Exactly: a string that grows takes up to three times its length.
  unpacked.reserve(std::min(max, kMaxRatio * bytes.size()) + 1);
  while (true) {
    const size_t room = std::min(piece.size(), max - unpacked.size() + 1);
    size_t made = 0;
    const int status = inflater.inflate_into(piece.data(), room, &made);
    unpacked.append(piece.data(), made);
    if (unpacked.size() > max) {
      throw DataError(fmt::format(
          "{}: holds more than {} bytes when unpacked, the maximum by its kind, header and packed "
          "size; fetch the file again, or unpack it yourself",
          printable(file), limit));
    }
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status != Z_OK && status != Z_STREAM_END) refuse(file, bytes, inflater.position(), status);
    if (status == Z_OK) continue;
    if (inflater.position() == bytes.size()) return unpacked;
    if (!starts_like_gzip(bytes, inflater.position())) {
      throw DataError(
          fmt::format("{}: the gzip data end at byte {}, but {} more bytes follow; fetch the file again",
                      printable(file), inflater.position(), bytes.size() - inflater.position()));
    }
    inflater.next_part();
  }
}

std::string gunzip_start(const std::string& bytes, const std::string& file, size_t count) {
  Inflater inflater(bytes);
  std::string start(count, '\0');
  size_t filled = 0;
  while (filled < count) {
    size_t made = 0;
    const int status = inflater.inflate_into(start.data() + filled, count - filled, &made);
    filled += made;
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status != Z_OK && status != Z_STREAM_END) refuse(file, bytes, inflater.position(), status);
    if (status == Z_OK) continue;
    if (inflater.position() == bytes.size()) break;
    inflater.next_part();
  }
  start.resize(filled);
  return start;
}

void check_data_folder(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return;
  throw MissingInputError(
      fmt::format("{}: no such folder; give the one that holds the data set's files", printable(folder)));
}

NamedBytes read_plain_or_gz(const std::string& folder, const std::string& name, const MaxBytes& max_bytes,
                            int64_t max_ratio) {
  const std::string plain = (std::filesystem::path(folder) / name).string();
  const std::string packed = plain + ".gz";
  std::error_code error;
  if (std::filesystem::exists(plain, error)) return {plain, read_file(plain, kMaxFileBytes)};
  if (std::filesystem::exists(packed, error)) {
    const std::string bytes = read_file(packed, kMaxFileBytes);
    const int64_t max = max_bytes(gunzip_start(bytes, packed, kStartBytes), packed);
    const int64_t max_by_size = max_ratio * static_cast<int64_t>(bytes.size()) + kAlwaysUnpacked;
    return {packed, gunzip(bytes, packed, std::min({max, max_by_size, kMaxFileBytes}))};
  }
  throw MissingInputError(
      fmt::format("{}: holds neither {} nor {}.gz; put one of them there", printable(folder), name, name));
}

}  // namespace renorm::data
