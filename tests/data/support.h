// Small files of the formats that are read, and a folder for them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace renorm::data::testing {

// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "renorm-data-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(file(name)).parent_path());
    std::ofstream(file(name), std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

inline std::string big_endian(uint32_t word) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>((word >> shift) & 0xff);
  return bytes;
}

// An idx file; the magic number holds the number of sizes.
inline std::string idx(const std::vector<uint32_t>& sizes, const std::string& data) {
  std::string bytes = big_endian(0x800 + static_cast<uint32_t>(sizes.size()));
  for (const uint32_t size : sizes) bytes += big_endian(size);
  return bytes + data;
}

// 0, 1, 2, ... 255, 0, ...
inline std::string counting(size_t count, size_t first = 0) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>((first + i) & 0xff);
  return bytes;
}

inline std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// The body must throw exactly Error, and its message must have all parts.
template <typename Error, typename Parts = std::initializer_list<std::string>>
void expect_error(const std::function<void()>& body, const Parts& parts) {
  try {
    body();
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
    }
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return;
  }
  ADD_FAILURE() << "no error; expected one about " << (parts.size() == 0 ? "" : *parts.begin());
}

}  // namespace renorm::data::testing
