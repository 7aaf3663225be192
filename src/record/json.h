// Records as JSON: one list of fields per type, which both writing and reading go through. Reading refuses
// what nlohmann-json lets pass: repeated names and bottomless nesting.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/choice.h"

namespace renorm::record {

constexpr size_t kMaxJsonDepth = 32;

// Limits on memory, for files that may be hostile.
struct JsonLimits {
  size_t max_entries = SIZE_MAX;  // of one object
  size_t max_array = SIZE_MAX;    // numbers or other values of one array
  size_t max_depth = kMaxJsonDepth;
  size_t max_name_bytes = SIZE_MAX;
  size_t max_names = SIZE_MAX;   // in all objects
  size_t max_values = SIZE_MAX;  // in all
};

// `text` as one JSON value. Throws DataError "WHERE: ..." with what is wrong and at which byte.
nlohmann::json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});

// nlohmann-json's message without its own numbering, safe to print.
std::string json_problem(const nlohmann::json::exception& error);

// A record type specializes this with
//   template <typename Record, typename Visitor> static void visit(Record& record, const Visitor& visit)
// which calls, in the order of the file:
//   visit(key, field)                     an optional without a value has no key
//   visit(key, field, Limits{min, max})   for a number, or for each number of a list
//   visit.defaulted(key, field, ...)      keeps its value if the file has no such key
//   visit.nullable(key, optional_field)   null without a value
//   visit.require(condition, key, what)   refuses a file with "FILE: 'KEY' WHAT"
// An enum with a table of names (base/choice.h) is written as its name.
// A double that is not finite is written as null; null is read as NaN unless there are limits.
template <typename Record>
struct Fields {
  static constexpr bool kIsPlain = true;
};

template <typename Number>
struct Limits {
  Number min;
  Number max;
};
template <typename Number>
Limits(Number, Number) -> Limits<Number>;

template <typename Type, typename = void>
struct IsRecord : std::true_type {};
template <typename Type>
struct IsRecord<Type, std::enable_if_t<Fields<Type>::kIsPlain>> : std::false_type {};

template <typename Type>
struct IsOptional : std::false_type {};
template <typename Type>
struct IsOptional<std::optional<Type>> : std::true_type {};

template <typename Type>
struct IsVector : std::false_type {};
template <typename Type>
struct IsVector<std::vector<Type>> : std::true_type {};

class FieldWriter {
 public:
  static constexpr bool kReads = false;

  explicit FieldWriter(nlohmann::ordered_json& object) : object_(object) {}

  template <typename Type, typename... Limit>
  void operator()(const std::string& key, const Type& value, const Limit&... /*limits*/) const {
    if constexpr (IsOptional<Type>::value) {
      if (value) object_[key] = json_of(*value);
    } else {
      object_[key] = json_of(value);
    }
  }
  template <typename Type, typename... Limit>
  void defaulted(const std::string& key, const Type& value, const Limit&... /*limits*/) const {
    object_[key] = json_of(value);
  }
  template <typename Type>
  void nullable(const std::string& key, const std::optional<Type>& value) const {
    object_[key] = value ? json_of(*value) : nlohmann::ordered_json(nullptr);
  }
  void require(bool /*condition*/, const char* /*key*/, const std::string& /*what*/) const {}

 private:
  template <typename Type>
  static nlohmann::ordered_json json_of(const Type& value) {
    if constexpr (IsRecord<Type>::value) {
      nlohmann::ordered_json object = nlohmann::ordered_json::object();
      Fields<Type>::visit(value, FieldWriter(object));
      return object;
    } else if constexpr (IsVector<Type>::value) {
      nlohmann::ordered_json array = nlohmann::ordered_json::array();
      for (const auto& item : value) array.push_back(json_of(item));
      return array;
    } else if constexpr (std::is_enum_v<Type>) {
      return name_of(value);
    } else {
      return value;
    }
  }

  nlohmann::ordered_json& object_;
};

enum class UnknownKeys { kIgnore, kRefuse };

// Throws DataError "WHERE: 'layers[3].r.mean' must be a number or null, got ...".
class FieldReader {
 public:
  static constexpr bool kReads = true;

  FieldReader(const nlohmann::json& object, const std::string& where, UnknownKeys unknown,
              std::string path = "")
      : object_(object), where_(where), unknown_(unknown), path_(std::move(path)) {}

  template <typename Type, typename... Limit>
  void operator()(const std::string& key, Type& value, const Limit&... limits) const {
    const nlohmann::json* found = find(key);
    if constexpr (IsOptional<Type>::value) {
      read_optional(found, key, value, limits...);
    } else {
      require(found != nullptr, key, "is missing");
      read(*found, path_ + key, value, limits...);
    }
  }
  template <typename Type, typename... Limit>
  void defaulted(const std::string& key, Type& value, const Limit&... limits) const {
    const nlohmann::json* found = find(key);
    if (found != nullptr) read(*found, path_ + key, value, limits...);
  }
  template <typename Type>
  void nullable(const std::string& key, std::optional<Type>& value) const {
    const nlohmann::json* found = find(key);
    require(found != nullptr, key, "is missing");
    read_optional(found->is_null() ? nullptr : found, key, value);
  }
  void require(bool condition, const std::string& key, const std::string& what) const;

  template <typename Record>
  void read_all(Record& record) const {
    Fields<Record>::visit(record, *this);
    refuse_unknown();
  }

 private:
  using Json = nlohmann::json;

  // Empty without `found`.
  template <typename Type, typename... Limit>
  void read_optional(const Json* found, const std::string& key, std::optional<Type>& value,
                     const Limit&... limits) const {
    value = std::nullopt;
    if (found == nullptr) return;
    Type content{};
    read(*found, path_ + key, content, limits...);
    value = std::move(content);
  }

  const Json* find(const std::string& key) const;
  void refuse_unknown() const;
  [[noreturn]] void refuse(const std::string& path, const std::string& expected, const Json& found) const;

  void read(const Json& found, const std::string& path, double& value) const;
  void read(const Json& found, const std::string& path, double& value, Limits<double> limits) const;
  void read(const Json& found, const std::string& path, int64_t& value) const;
  void read(const Json& found, const std::string& path, int64_t& value, Limits<int64_t> limits) const;
  void read(const Json& found, const std::string& path, uint64_t& value) const;
  void read(const Json& found, const std::string& path, bool& value) const;
  void read(const Json& found, const std::string& path, std::string& value) const;
  void read(const Json& found, const std::string& path, std::map<std::string, std::string>& value) const;

  template <typename Enum>
  std::enable_if_t<std::is_enum_v<Enum>> read(const Json& found, const std::string& path, Enum& value) const {
    if (!found.is_string()) refuse(path, "a string", found);
    try {
      value = parse_choice<Enum>(found.get<std::string>());
    } catch (const UsageError& error) {
      throw DataError(where_ + ": '" + path + "': " + error.what());
    }
  }
  template <typename Type, typename... Limit>
  void read(const Json& found, const std::string& path, std::vector<Type>& value,
            const Limit&... limits) const {
    if (!found.is_array()) refuse(path, "an array", found);
    value.clear();
    for (const Json& item : found) {
      const std::string inside = path + "[" + std::to_string(value.size()) + "]";
      read(item, inside, value.emplace_back(), limits...);
    }
  }
  template <typename Record>
  std::enable_if_t<IsRecord<Record>::value> read(const Json& found, const std::string& path,
                                                 Record& value) const {
    if (!found.is_object()) refuse(path, "an object", found);
    FieldReader(found, where_, unknown_, path + ".").read_all(value);
  }

  const Json& object_;
  const std::string& where_;
  UnknownKeys unknown_;
  std::string path_;
  mutable std::vector<std::string> keys_;  // visited so far
};

// A kind of JSON file.
struct JsonFormat {
  const char* name;     // "a model card"
  int64_t version = 0;  // 'format_version', its first entry; 0: it has none
  size_t max_bytes = SIZE_MAX;
  UnknownKeys unknown = UnknownKeys::kIgnore;
  int indent = 2;  // -1: all on one line
};

// The two halves of writing and reading that are the same for all records. `where` starts the messages.
nlohmann::ordered_json new_object(const JsonFormat& format);
std::string text_of(const nlohmann::ordered_json& object, const JsonFormat& format);
nlohmann::json parse_object(const std::string& text, const std::string& where, const JsonFormat& format);

// The file as text that ends with a newline, without one if it is all on one line. Doubles read back to the
// same bits. Bytes that are not UTF-8 are replaced.
template <typename Record>
std::string write_json(const Record& record, const JsonFormat& format) {
  nlohmann::ordered_json object = new_object(format);
  Fields<Record>::visit(record, FieldWriter(object));
  return text_of(object, format);
}

// Throws DataError that starts with `where`: not JSON, too long, another version, an entry missing, repeated,
// of the wrong type, out of its limits or, where the format refuses them, unknown.
template <typename Record>
Record read_json(const std::string& text, const std::string& where, const JsonFormat& format) {
  const nlohmann::json object = parse_object(text, where, format);
  Record record;
  FieldReader(object, where, format.unknown).read_all(record);
  return record;
}

}  // namespace renorm::record
