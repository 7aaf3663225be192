#include "record/safetensors_header.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "record/strict_json.h"

namespace renorm::record {
namespace {

using nlohmann::json;

constexpr size_t kOffsets = 2;
constexpr int64_t kLongestPiece = 1000000;  // far more than the longest name or the most dimensions need

// Called by the parser for each token. Where the parser may be is one of few places, so nothing can nest.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  SafetensorsHeader header;
  std::string problem;

  bool start_object(size_t /*elements*/) override {
    switch (place_) {
      case Place::kOutside:
        place_ = Place::kHeader;
        return true;
      case Place::kEntry:
        if (is_metadata_) {
          place_ = Place::kMetadata;
        } else {
          place_ = Place::kTensor;
          header.tensors.emplace_back().name = name_;
          fields_.clear();
        }
        return true;
      default:
        return refuse("an object");
    }
  }

  bool key(string_t& name) override {
    if (place_ == Place::kHeader) return entry_key(name);
    if (place_ == Place::kMetadata) {
      place_ = Place::kMetadataValue;
      key_ = name;
      if (header.metadata.count(name) != 0) return twice(name, kMetadataKey);
      if (static_cast<int64_t>(header.metadata.size()) < kMostTensors) return true;
      return fail(fmt::format("{} has more than {} entries", kMetadataKey, kMostTensors));
    }
    if (name != "dtype" && name != "shape" && name != "data_offsets") {
      return fail(
          fmt::format("tensor '{}' has an unknown entry '{}'; there are dtype, shape and data_offsets",
                      printable(name_), printable(name)));
    }
    if (!fields_.insert(name).second) return twice(name, name_);
    key_ = name;
    place_ = Place::kField;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor && fields_.size() != 3) {
      const char* missing = fields_.count("dtype") == 0   ? "dtype"
                            : fields_.count("shape") == 0 ? "shape"
                                                          : "data_offsets";
      return fail(fmt::format("tensor '{}' has no {}", printable(name_), missing));
    }
    place_ = place_ == Place::kHeader ? Place::kOutside : Place::kHeader;
    return true;
  }

  bool start_array(size_t /*elements*/) override {
    if (place_ != Place::kField || key_ == "dtype") return refuse("an array");
    place_ = Place::kNumbers;
    return true;
  }

  bool end_array() override {
    if (key_ == "data_offsets" && numbers().size() != kOffsets) {
      return fail(fmt::format("data_offsets of tensor '{}' must be two numbers, got {}", printable(name_),
                              numbers().size()));
    }
    place_ = Place::kTensor;
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadataValue) {
      header.metadata[key_] = value;
      place_ = Place::kMetadata;
      return true;
    }
    if (place_ != Place::kField || key_ != "dtype") return refuse("a string");
    header.tensors.back().dtype = value;
    place_ = Place::kTensor;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kNumbers) return refuse("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return refuse("a number above 2^63 - 1");
    }
    const size_t most = key_ == "shape" ? static_cast<size_t>(kMostDimensions) : kOffsets;
    if (numbers().size() == most) {
      return fail(fmt::format("{} of tensor '{}' has more than {} numbers", key_, printable(name_), most));
    }
    numbers().push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(number_integer_t /*value*/) override { return refuse("a negative number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return refuse("a number that is not whole or too large");
  }
  bool null() override { return refuse("null"); }
  bool boolean(bool /*value*/) override { return refuse("true or false"); }
  bool binary(binary_t& /*value*/) override { return refuse("binary data"); }

  bool parse_error(size_t /*position*/, const std::string& /*token*/, const json::exception& error) override {
    return fail("the header is no valid JSON: " + json_problem(error));
  }

 private:
  enum class Place { kOutside, kHeader, kEntry, kMetadata, kMetadataValue, kTensor, kField, kNumbers };

  bool entry_key(const std::string& name) {
    if (!names_.insert(name).second)
      return fail(fmt::format("the name '{}' is given twice", printable(name)));
    if (static_cast<int64_t>(header.tensors.size()) == kMostTensors) {
      return fail(fmt::format("the header has more than {} tensors", kMostTensors));
    }
    name_ = name;
    is_metadata_ = name == kMetadataKey;
    place_ = Place::kEntry;
    return true;
  }

  std::vector<int64_t>& numbers() {
    TensorEntry& tensor = header.tensors.back();
    return key_ == "shape" ? tensor.shape : tensor.data_offsets;
  }

  bool fail(std::string what) {
    problem = std::move(what);
    return false;
  }

  bool twice(const std::string& key, const std::string& entry) {
    return fail(fmt::format("'{}' is given twice in '{}'", printable(key), printable(entry)));
  }

  bool refuse(const char* found) {
    switch (place_) {
      case Place::kOutside:
      case Place::kHeader:
        return fail(fmt::format("the header must be one JSON object, got {}", found));
      case Place::kEntry:
        return fail(fmt::format("the entry '{}' must be an object, got {}", printable(name_), found));
      case Place::kMetadata:
      case Place::kMetadataValue:
        return fail(fmt::format("metadata '{}' must be a string, got {}", printable(key_), found));
      default:
        return fail(fmt::format("{} of tensor '{}' must be {}, got {}", key_, printable(name_),
                                key_ == "dtype" ? "a string" : "an array of whole numbers of at least 0",
                                found));
    }
  }

  Place place_ = Place::kOutside;
  bool is_metadata_ = false;
  std::string name_;  // of the tensor
  std::string key_;   // of its field, or of the metadata
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> fields_;
};

const char* find_byte(const char* begin, const char* end, char byte) {
  const void* found = std::memchr(begin, byte, static_cast<size_t>(end - begin));
  return found == nullptr ? end : static_cast<const char*>(found);
}

}  // namespace

std::string problem_of_bytes(const char* begin, const char* end) {
  if (find_byte(begin, end, '\0') != end) return "the header is no valid JSON: it has a zero byte";
  for (const char* piece = begin; piece != end;) {
    const char* quote = find_byte(piece, end, '"');
    if (quote - piece > kLongestPiece) {
      return fmt::format("the header has more than {} bytes without a quotation mark", kLongestPiece);
    }
    piece = quote == end ? end : quote + 1;
  }
  return "";
}

SafetensorsHeader parse_safetensors_header(const char* begin, const char* end, const std::string& file) {
  HeaderReader reader;
  bool parsed = false;
  try {
    while (end != begin && *(end - 1) == ' ') --end;
    reader.problem = problem_of_bytes(begin, end);
    if (reader.problem.empty()) parsed = json::sax_parse(begin, end, &reader);
  } catch (const json::exception& error) {
    reader.problem = "the header is no valid JSON: " + json_problem(error);
  }
  if (!parsed) throw DataError(fmt::format("{}: {}", printable(file), reader.problem));
  return std::move(reader.header);
}

}  // namespace renorm::record
