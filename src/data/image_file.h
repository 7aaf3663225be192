// Files of pictures, any of which may be bad. No torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/errors.h"
#include "base/files.h"

namespace renorm::data {

// 268 million: more than any picture takes whose pixels may be decoded, unless it is padded.
constexpr int64_t kMostImageFileBytes = int64_t{1} << 28;

// Throws as read_file does.
inline std::string read_image_file(const std::string& path) { return read_file(path, kMostImageFileBytes); }

// Calls read(), which reads and decodes a picture. The sentence of its error if the file is to blame:
// damaged, gone, or not to be read.
template <typename Read>
std::optional<std::string> fault_of(Read&& read) {
  try {
    read();
    return std::nullopt;
  } catch (const DataError& error) {
    return error.what();
  } catch (const MissingInputError& error) {
    return error.what();
  } catch (const IoError& error) {
    return error.what();
  }
}

}  // namespace renorm::data
