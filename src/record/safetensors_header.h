// The JSON header of a safetensors file, read value by value: a hostile one is refused before it takes
// memory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace renorm::record {

constexpr int64_t kMostTensors = 100000;
constexpr int64_t kMostDimensions = 64;
constexpr const char* kMetadataKey = "__metadata__";

struct TensorEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> data_offsets;  // begin and end
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of the header
  std::map<std::string, std::string> metadata;
};

// What is wrong with a header's bytes before they are parsed, or "". The parser takes a zero byte for the
// end, and it copies a string again and again while that grows.
std::string problem_of_bytes(const char* begin, const char* end);

// The syntax alone: every entry complete, nothing twice, all numbers at least 0. Throws DataError that starts
// with `file`.
SafetensorsHeader parse_safetensors_header(const char* begin, const char* end, const std::string& file);

}  // namespace renorm::record
