#include "record/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "record/json.h"

namespace renorm::record {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kAlignment = 8;
constexpr int64_t kMaxHeader = 100000000;
constexpr int64_t kMaxTensors = 100000;
constexpr int64_t kMaxDimensions = 64;
constexpr int64_t kMaxPiece = 1000000;  // bytes between quotation marks: longer than any sensible name
constexpr int64_t kNamesPerTensor = 4;  // its own, dtype, shape, data_offsets
// The header, an entry and its shape are three levels.
constexpr JsonLimits kLimits = {
    kMaxTensors + 1, kMaxDimensions, 3, kMaxPiece, kMaxTensors*(kNamesPerTensor + 1) + 1, kMaxTensors * 72};
constexpr const char* kMetadataKey = "__metadata__";

struct Entry {
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> data_offsets;  // begin and end
};

}  // namespace

template <>
struct Fields<Entry> {
  template <typename Record, typename Visitor>
  static void visit(Record& entry, const Visitor& visit) {
    visit("dtype", entry.dtype);
    visit("shape", entry.shape);
    visit("data_offsets", entry.data_offsets);
    visit.require(entry.data_offsets.size() == 2, "data_offsets",
                  fmt::format("must be two numbers, got {}", entry.data_offsets.size()));
  }
};

namespace {

// a * b, or -1 if it is above 2^63 - 1; both at least 0.
int64_t product(int64_t a, int64_t b) {
  if (b != 0 && a > std::numeric_limits<int64_t>::max() / b) return -1;
  return a * b;
}

// Bytes of a tensor, or -1 if they are more than 2^63 - 1.
int64_t bytes_of(const std::vector<int64_t>& shape, int64_t value_size) {
  // A dimension of 0 makes the product 0, whatever the others would overflow to.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t bytes = value_size;
  for (const int64_t size : shape) {
    bytes = product(bytes, size);
    if (bytes < 0) return -1;
  }
  return bytes;
}

// Checks the bytes of a header before parsing. Returns the problem, or "". The parser copies a string
// repeatedly while it grows, so a name of 90 MB would take a multiple of that.
std::string problem_of_bytes(std::string_view header) {
  for (size_t begin = 0; begin < header.size();) {
    const size_t quote = std::min(header.find('"', begin), header.size());
    if (static_cast<int64_t>(quote - begin) > kMaxPiece) {
      return fmt::format("the header has more than {} bytes without a quotation mark", kMaxPiece);
    }
    begin = quote + 1;
  }
  return "";
}

void check_tensor(const TensorBytes& tensor) {
  const auto refuse = [&tensor](const std::string& problem) {
    throw std::invalid_argument(fmt::format("safetensors: tensor '{}' {}", printable(tensor.name), problem));
  };
  const int64_t size = dtype_size(tensor.dtype);
  if (tensor.name == kMetadataKey) refuse("has a name that the format reserves");
  if (size == 0) refuse(fmt::format("has the unknown dtype '{}'", printable(tensor.dtype)));
  if (static_cast<int64_t>(tensor.shape.size()) > kMaxDimensions) refuse("has too many dimensions");
  for (const int64_t dimension : tensor.shape) {
    if (dimension < 0) refuse("has a negative dimension");
  }
  if (tensor.bytes != bytes_of(tensor.shape, size)) refuse("has bytes that do not fit its shape");
  if (tensor.bytes > 0 && tensor.data == nullptr) refuse("has no data");
}

void check_tensors(const std::vector<TensorBytes>& tensors) {
  if (static_cast<int64_t>(tensors.size()) > kMaxTensors) {
    throw std::invalid_argument(fmt::format("safetensors: {} tensors are too many", tensors.size()));
  }
  std::set<std::string> names;
  for (const TensorBytes& tensor : tensors) {
    check_tensor(tensor);
    if (!names.insert(tensor.name).second) {
      throw std::invalid_argument(fmt::format("safetensors: two tensors '{}'", printable(tensor.name)));
    }
  }
}

std::string encode_header(const std::vector<const TensorBytes*>& tensors,
                          const std::map<std::string, std::string>& metadata) {
  if (static_cast<int64_t>(metadata.size()) > kMaxTensors) {
    throw std::invalid_argument(fmt::format("safetensors: {} metadata are too many", metadata.size()));
  }
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  // ordered_json searches all names on insertion; appending keeps many tensors fast.
  auto& entries = header.get_ref<ordered_json::object_t&>();
  int64_t begin = 0;
  for (const TensorBytes* tensor : tensors) {
    ordered_json entry = {{"dtype", tensor->dtype}, {"shape", tensor->shape}};
    entry["data_offsets"] = {begin, begin + tensor->bytes};
    entries.push_back({tensor->name, std::move(entry)});
    begin += tensor->bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const ordered_json::exception& error) {
    throw std::invalid_argument(fmt::format("safetensors: {}", json_problem(error)));
  }
  const std::string problem = problem_of_bytes(text);
  if (!problem.empty()) throw std::invalid_argument(fmt::format("safetensors: {}", problem));
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  if (static_cast<int64_t>(text.size()) > kMaxHeader) {
    throw std::invalid_argument("safetensors: the header becomes longer than 100 MB");
  }
  return text;
}

uint64_t read_length(const std::string& bytes) {
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = (length << 8) | static_cast<unsigned char>(bytes[i]);
  return length;
}

// Checks one tensor without regard to the others.
TensorBytes to_tensor(const std::string& name, Entry entry, const char* data, int64_t data_bytes,
                      const std::string& where) {
  const auto refuse = [&](const std::string& problem) {
    throw DataError(fmt::format("{}: tensor '{}' {}", where, printable(name), problem));
  };
  const int64_t value_size = dtype_size(entry.dtype);
  if (value_size == 0) refuse(fmt::format("has the unknown dtype '{}'", printable(entry.dtype)));
  const int64_t begin = entry.data_offsets[0];
  const int64_t end = entry.data_offsets[1];
  if (begin > end) refuse(fmt::format("ends at byte {} before it begins at {}", end, begin));
  if (end > data_bytes) {
    refuse(fmt::format("ends at byte {}, but the file has only {} bytes of data", end, data_bytes));
  }
  const int64_t expected = bytes_of(entry.shape, value_size);
  if (expected != end - begin) {
    const std::string needs = expected < 0 ? "more than 2^63" : fmt::format("{}", expected);
    refuse(fmt::format("has {} bytes, but shape [{}] of {} needs {}", end - begin,
                       fmt::join(entry.shape, ","), entry.dtype, needs));
  }
  return {name, std::move(entry.dtype), std::move(entry.shape), data + begin, end - begin};
}

// The tensors must fill the data from the first byte to the last without gaps.
void check_tiling(const std::vector<TensorBytes>& tensors, const char* data, int64_t data_bytes,
                  const std::string& where) {
  int64_t end = 0;
  for (const TensorBytes& tensor : tensors) {
    const int64_t begin = tensor.data - data;
    if (begin != end) {
      throw DataError(fmt::format("{}: tensor '{}' begins at byte {}, but the one before it ends at {}",
                                  where, printable(tensor.name), begin, end));
    }
    end = begin + tensor.bytes;
  }
  if (end != data_bytes) {
    throw DataError(fmt::format("{}: the last {} of {} bytes of data belong to no tensor", where,
                                data_bytes - end, data_bytes));
  }
}

// The length of the header in bytes, checked.
int64_t header_length(const std::string& bytes, const std::string& where) {
  const auto size = static_cast<int64_t>(bytes.size());
  if (size < kLengthBytes) {
    throw DataError(fmt::format("{}: a safetensors file has at least 8 bytes, this one has {}", where, size));
  }
  const uint64_t length = read_length(bytes);
  if (length > static_cast<uint64_t>(kMaxHeader)) {
    throw DataError(fmt::format(
        "{}: the header has {} bytes, more than the 100 MB allowed: not a safetensors file", where, length));
  }
  if (static_cast<int64_t>(length) > size - kLengthBytes) {
    throw DataError(fmt::format("{}: the header has {} bytes, but only {} follow: the file was truncated",
                                where, length, size - kLengthBytes));
  }
  // JSON allows white space before it, the format does not.
  if (length == 0 || bytes[kLengthBytes] != '{') {
    throw DataError(fmt::format("{}: the header must start with '{{': not a safetensors file", where));
  }
  return static_cast<int64_t>(length);
}

}  // namespace

int64_t dtype_size(const std::string& dtype) {
  static const std::map<std::string, int64_t> sizes = {{"BOOL", 1},    {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1},
                                                       {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
                                                       {"BF16", 2},    {"I32", 4}, {"U32", 4}, {"F32", 4},
                                                       {"I64", 8},     {"U64", 8}, {"F64", 8}, {"C64", 8}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

std::string encode_safetensors(const std::vector<TensorBytes>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  check_tensors(tensors);
  std::vector<const TensorBytes*> order;
  size_t total = 0;
  for (const TensorBytes& tensor : tensors) {
    order.push_back(&tensor);
    total += static_cast<size_t>(tensor.bytes);
  }
  std::stable_sort(order.begin(), order.end(), [](const TensorBytes* a, const TensorBytes* b) {
    return dtype_size(a->dtype) > dtype_size(b->dtype);
  });
  const std::string header = encode_header(order, metadata);
  std::string bytes;
  bytes.reserve(kLengthBytes + header.size() + total);
  for (int i = 0; i < kLengthBytes; ++i) bytes += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  bytes += header;
  for (const TensorBytes* tensor : order) {
    if (tensor->bytes > 0) bytes.append(tensor->data, static_cast<size_t>(tensor->bytes));
  }
  return bytes;
}

Safetensors parse_safetensors(const std::string& bytes, const std::string& file) {
  const std::string where = printable(file);
  const int64_t length = header_length(bytes, where);
  const char* data = bytes.data() + kLengthBytes + length;
  const int64_t data_bytes = static_cast<int64_t>(bytes.size()) - kLengthBytes - length;
  std::string_view header(bytes.data() + kLengthBytes, static_cast<size_t>(length));
  header = header.substr(0, header.find_last_not_of(' ') + 1);
  const std::string problem = problem_of_bytes(header);
  if (!problem.empty()) throw DataError(fmt::format("{}: {}", where, problem));
  const nlohmann::json object = parse_json(header, where, kLimits);
  const FieldReader reader(object, where, UnknownKeys::kRefuse);
  Safetensors result;
  result.tensors.reserve(object.size());
  for (const auto& [name, value] : object.items()) {
    if (name == kMetadataKey) {
      reader(name, result.metadata);
    } else {
      Entry entry;
      reader(name, entry);
      result.tensors.push_back(to_tensor(name, std::move(entry), data, data_bytes, where));
    }
  }
  if (static_cast<int64_t>(result.tensors.size()) > kMaxTensors) {
    throw DataError(fmt::format("{}: more than {} tensors", where, kMaxTensors));
  }
  if (static_cast<int64_t>(result.metadata.size()) > kMaxTensors) {
    throw DataError(fmt::format("{}: more than {} metadata", where, kMaxTensors));
  }
  std::stable_sort(result.tensors.begin(), result.tensors.end(),
                   [](const TensorBytes& a, const TensorBytes& b) {
                     return std::pair(a.data, a.bytes) < std::pair(b.data, b.bytes);
                   });
  check_tiling(result.tensors, data, data_bytes, where);
  return result;
}

}  // namespace renorm::record
