#include "record/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/errors.h"
#include "base/text.h"

namespace renorm::record {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kVersionKey = "format_version";

// Checks text without keeping it. nlohmann-json's own callback while parsing takes quadratic time: at the end
// of each object it searches the one around it.
class Guard : public nlohmann::json_sax<json> {
 public:
  Guard(const std::string& where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  bool start_object(size_t /*elements*/) override { return open("an object", limits_.max_entries); }
  bool start_array(size_t /*elements*/) override { return open("an array", limits_.max_array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (name.size() > limits_.max_name_bytes) {
      refuse(fmt::format("a name has more than {} bytes", limits_.max_name_bytes));
    }
    if (++names_ > limits_.max_names) refuse(fmt::format("more than {} names", limits_.max_names));
    if (open_.back().names.insert(name).second) return true;
    refuse(fmt::format("'{}' is given twice in one object", printable(name)));
  }
  bool null() override { return count_value(); }
  bool boolean(bool /*value*/) override { return count_value(); }
  bool number_integer(number_integer_t /*value*/) override { return count_value(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return count_value(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return count_value(); }
  bool string(string_t& /*value*/) override { return count_value(); }
  bool binary(binary_t& /*value*/) override { return count_value(); }
  bool parse_error(size_t /*position*/, const std::string& /*token*/, const json::exception& error) override {
    refuse("not valid JSON: " + json_problem(error));
  }

 private:
  struct Open {
    const char* kind;
    size_t max_entries;
    size_t entries = 0;
    std::set<std::string> names = {};
  };

  bool open(const char* kind, size_t max_entries) {
    if (open_.size() >= limits_.max_depth) {
      refuse(fmt::format("nested deeper than {} levels", limits_.max_depth));
    }
    open_.push_back({kind, max_entries});
    return true;
  }
  bool close() {
    open_.pop_back();
    return count_value();
  }
  bool count_value() {
    if (++values_ > limits_.max_values) refuse(fmt::format("more than {} values", limits_.max_values));
    if (open_.empty() || ++open_.back().entries <= open_.back().max_entries) return true;
    refuse(fmt::format("{} has more than {} entries", open_.back().kind, open_.back().max_entries));
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(fmt::format("{}: {}", where_, what));
  }

  const std::string& where_;
  const JsonLimits& limits_;
  std::vector<Open> open_;  // objects and arrays, the innermost last
  size_t names_ = 0;
  size_t values_ = 0;
};

void check_version(const json& object, const std::string& where, const JsonFormat& format) {
  const auto found = object.find(kVersionKey);
  if (found == object.end()) throw DataError(fmt::format("{}: '{}' is missing", where, kVersionKey));
  if (found->is_number_integer() && *found == format.version) return;
  const bool newer = found->is_number_integer() && *found > format.version;
  throw DataError(fmt::format("{}: '{}' must be {}, got {}; use {}", where, kVersionKey, format.version,
                              printable(found->dump(-1, ' ', true, json::error_handler_t::replace)),
                              newer ? "a newer renorm" : "the renorm that wrote it"));
}

}  // namespace

json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  // The parser takes a zero byte for the end.
  if (text.find('\0') != std::string_view::npos) {
    throw DataError(fmt::format("{}: not valid JSON: it has a zero byte", where));
  }
  try {
    Guard guard(where, limits);
    json::sax_parse(text.begin(), text.end(), &guard);
    return json::parse(text.begin(), text.end());
  } catch (const json::exception& error) {
    throw DataError(fmt::format("{}: not valid JSON: {}", where, json_problem(error)));
  }
}

std::string json_problem(const json::exception& error) {
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return printable(text.front() == '[' && end != std::string::npos ? text.substr(end + 2) : text);
}

void FieldReader::require(bool condition, const std::string& key, const std::string& what) const {
  if (!condition) throw DataError(fmt::format("{}: '{}{}' {}", where_, printable(path_), key, what));
}

const json* FieldReader::find(const std::string& key) const {
  keys_.push_back(key);
  const auto found = object_.find(key);
  return found == object_.end() ? nullptr : &*found;
}

void FieldReader::refuse_unknown() const {
  if (unknown_ == UnknownKeys::kIgnore) return;
  for (const auto& [name, value] : object_.items()) {
    if (name == kVersionKey && path_.empty()) continue;
    if (std::find(keys_.begin(), keys_.end(), name) != keys_.end()) continue;
    const std::string nearest = nearest_name(name, keys_);
    throw DataError(fmt::format("{}: unknown entry '{}'{}", where_, printable(path_ + name),
                                nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
  }
}

void FieldReader::refuse(const std::string& path, const std::string& expected, const Json& found) const {
  throw DataError(fmt::format("{}: '{}' must be {}, got {}", where_, printable(path), expected,
                              printable(found.dump(-1, ' ', true, Json::error_handler_t::replace))));
}

void FieldReader::read(const Json& found, const std::string& path, double& value) const {
  if (!found.is_number() && !found.is_null()) refuse(path, "a number or null", found);
  value = found.is_null() ? std::numeric_limits<double>::quiet_NaN() : found.get<double>();
}

void FieldReader::read(const Json& found, const std::string& path, double& value,
                       Limits<double> limits) const {
  if (found.is_number()) {
    value = found.get<double>() + 0.0;  // no negative zero
    if (value >= limits.min && value <= limits.max) return;
  }
  refuse(path, fmt::format("a number from {} to {}", shortest(limits.min), shortest(limits.max)), found);
}

void FieldReader::read(const Json& found, const std::string& path, int64_t& value) const {
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!found.is_number_unsigned()) refuse(path, "a whole number of at least 0", found);
  if (found.get<uint64_t>() > kMax) refuse(path, "a whole number of at most 2^63 - 1", found);
  value = found.get<int64_t>();
}

void FieldReader::read(const Json& found, const std::string& path, int64_t& value,
                       Limits<int64_t> limits) const {
  read(found, path, value);
  if (value >= limits.min && value <= limits.max) return;
  refuse(path, fmt::format("a whole number from {} to {}", limits.min, limits.max), found);
}

void FieldReader::read(const Json& found, const std::string& path, uint64_t& value) const {
  if (!found.is_number_unsigned()) refuse(path, "a whole number of at least 0", found);
  value = found.get<uint64_t>();
}

void FieldReader::read(const Json& found, const std::string& path, bool& value) const {
  if (!found.is_boolean()) refuse(path, "true or false", found);
  value = found.get<bool>();
}

void FieldReader::read(const Json& found, const std::string& path, std::string& value) const {
  if (!found.is_string()) refuse(path, "a string", found);
  value = found.get<std::string>();
}

void FieldReader::read(const Json& found, const std::string& path,
                       std::map<std::string, std::string>& value) const {
  if (!found.is_object()) refuse(path, "an object", found);
  value.clear();
  for (const auto& [key, text] : found.items()) read(text, fmt::format("{}.{}", path, key), value[key]);
}

ordered_json new_object(const JsonFormat& format) {
  ordered_json object = ordered_json::object();
  if (format.version > 0) object[kVersionKey] = format.version;
  return object;
}

std::string text_of(const ordered_json& object, const JsonFormat& format) {
  const std::string text = object.dump(format.indent, ' ', false, ordered_json::error_handler_t::replace);
  return format.indent < 0 ? text : text + "\n";
}

json parse_object(const std::string& text, const std::string& where, const JsonFormat& format) {
  if (text.size() > format.max_bytes) {
    throw DataError(fmt::format("{}: {} may have at most {} bytes, got {}", where, format.name,
                                format.max_bytes, text.size()));
  }
  json object = parse_json(text, where);
  if (!object.is_object()) throw DataError(fmt::format("{}: {} must be a JSON object", where, format.name));
  if (format.version > 0) check_version(object, where, format);
  return object;
}

}  // namespace renorm::record
