// The safetensors format: 8 bytes of header length, a JSON header, then the bytes of the tensors. A tensor is
// a view of bytes. https://github.com/huggingface/safetensors
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace renorm::record {

struct TensorBytes {
  std::string name;
  std::string dtype;  // "F32", "F64", "BF16", "F16", "I64", "I32", "U8", "BOOL", ...
  std::vector<int64_t> shape;
  const char* data = nullptr;
  int64_t bytes = 0;
};

// Bytes of one value of a dtype; 0 for an unknown one.
int64_t dtype_size(const std::string& dtype);

// The widest dtypes first, otherwise in the given order: the format allows no gaps, and so every value still
// lies at a multiple of its size. `metadata` becomes "__metadata__" if not empty. The same input gives the
// same bytes. Throws std::invalid_argument for what parse_safetensors would refuse.
std::string encode_safetensors(const std::vector<TensorBytes>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

struct Safetensors {
  std::vector<TensorBytes> tensors;  // in the order of their bytes; data points into what was parsed
  std::map<std::string, std::string> metadata;
};

// Throws DataError that starts with `file`: header longer than the file or 100 MB, not JSON or with entries
// that the format does not have, more than 100,000 tensors or 64 dimensions, a repeated name or one of a
// megabyte, unknown dtype, negative or overflowing shape, size that does not fit shape and dtype, bytes
// outside the file, overlapping or left over. Memory is at most about ten times the header's length: a number
// in a shape takes 2 bytes of the header and 16 of memory.
Safetensors parse_safetensors(const std::string& bytes, const std::string& file);

}  // namespace renorm::record
