// Records as JSON objects: a list of fields a type, which writing and reading both go through.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/text.h"

namespace renorm::record {

// A record type specialises this with `template <typename Record, typename Visitor> static void
// visit(Record& record, const Visitor& visit)`, which calls visit(key, field) in the order of the file.
template <typename Record>
struct Fields {
  static constexpr bool kIsPlain = true;
};

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
  explicit FieldWriter(nlohmann::ordered_json& object) : object_(object) {}

  // An optional without a value leaves no key.
  template <typename Type>
  void operator()(const char* key, const Type& value) const {
    if constexpr (IsOptional<Type>::value) {
      if (value) object_[key] = json_of(*value);
    } else {
      object_[key] = json_of(value);
    }
  }

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
    } else {
      return value;
    }
  }

  nlohmann::ordered_json& object_;
};

// Throws DataError "WHERE: 'layers[3].r.mean' must be a number or null, got ...".
class FieldReader {
 public:
  FieldReader(const nlohmann::json& object, const std::string& where, std::string path = "")
      : object_(object), where_(where), path_(std::move(path)) {}

  template <typename Type>
  void operator()(const char* key, Type& value) const {
    const auto found = object_.find(key);
    if constexpr (IsOptional<Type>::value) {
      value.reset();
      if (found != object_.end()) read(*found, path_ + key, value.emplace());
    } else {
      if (found == object_.end()) throw DataError(fmt::format("{}: '{}{}' is missing", where_, path_, key));
      read(*found, path_ + key, value);
    }
  }

 private:
  using Json = nlohmann::json;

  [[noreturn]] void refuse(const std::string& path, const char* expected, const Json& found) const {
    throw DataError(fmt::format("{}: '{}' must be {}, got {}", where_, path, expected,
                                printable(found.dump(-1, ' ', true, Json::error_handler_t::replace))));
  }

  void read(const Json& found, const std::string& path, double& value) const {
    if (!found.is_number() && !found.is_null()) refuse(path, "a number or null", found);
    value = found.is_null() ? std::numeric_limits<double>::quiet_NaN() : found.get<double>();
  }
  void read(const Json& found, const std::string& path, int64_t& value) const {
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (!found.is_number_unsigned() || found.get<uint64_t>() > kMost) {
      refuse(path, "a whole number of at least 0", found);
    }
    value = found.get<int64_t>();
  }
  void read(const Json& found, const std::string& path, uint64_t& value) const {
    if (!found.is_number_unsigned()) refuse(path, "a whole number of at least 0", found);
    value = found.get<uint64_t>();
  }
  void read(const Json& found, const std::string& path, bool& value) const {
    if (!found.is_boolean()) refuse(path, "true or false", found);
    value = found.get<bool>();
  }
  void read(const Json& found, const std::string& path, std::string& value) const {
    if (!found.is_string()) refuse(path, "a string", found);
    value = found.get<std::string>();
  }
  void read(const Json& found, const std::string& path, std::map<std::string, std::string>& value) const {
    if (!found.is_object()) refuse(path, "an object", found);
    value.clear();
    for (const auto& [key, text] : found.items()) read(text, fmt::format("{}.{}", path, key), value[key]);
  }
  template <typename Type>
  void read(const Json& found, const std::string& path, std::vector<Type>& value) const {
    if (!found.is_array()) refuse(path, "an array", found);
    value.clear();
    for (const Json& item : found) {
      const std::string inside = fmt::format("{}[{}]", path, value.size());
      read(item, inside, value.emplace_back());
    }
  }
  template <typename Record>
  std::enable_if_t<IsRecord<Record>::value> read(const Json& found, const std::string& path,
                                                 Record& value) const {
    if (!found.is_object()) refuse(path, "an object", found);
    Fields<Record>::visit(value, FieldReader(found, where_, path + "."));
  }

  const Json& object_;
  const std::string& where_;
  std::string path_;
};

}  // namespace renorm::record
