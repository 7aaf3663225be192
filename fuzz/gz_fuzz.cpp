// Input: a gzip file. The same bytes are also packed and must come back unchanged.
#include <zlib.h>

#include "data/packed_file.h"
#include "fuzz.h"

using namespace renorm;

namespace {

constexpr int64_t kLimit = 1 << 16;

// The smallest window and memory, because setting up the defaults costs more than everything else.
std::string packed(const std::string& bytes) {
  z_stream stream{};
  fuzz::expect(deflateInit2(&stream, 1, Z_DEFLATED, 9 + 16, 1, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2");
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  fuzz::expect(deflate(&stream, Z_FINISH) == Z_STREAM_END, "deflate");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = fuzz::text_of(data, size);
  fuzz::accepts([&] {
    fuzz::expect(static_cast<int64_t>(data::gunzip(bytes, fuzz::kFile, kLimit).size()) <= kLimit,
                 "more bytes than the limit");
  });
  const std::string file = packed(bytes);
  const auto length = static_cast<int64_t>(size);
  fuzz::expect(data::gunzip(file, fuzz::kFile, length) == bytes, "packed bytes come back changed");
  const auto refused = [&](const std::string& text, int64_t limit) {
    return !fuzz::accepts([&] { data::gunzip(text, fuzz::kFile, limit); });
  };
  fuzz::expect(length == 0 || refused(file, length - 1), "the limit is not kept");
  fuzz::expect(refused(file.substr(0, file.size() - 1), length), "a file cut short is accepted");
  return 0;
}
