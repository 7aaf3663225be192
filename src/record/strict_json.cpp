#include "record/strict_json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "base/errors.h"
#include "base/text.h"

namespace renorm::record {
namespace {

using nlohmann::json;

// Sees every value while it is parsed.
class Guard {
 public:
  explicit Guard(const std::string& where) : where_(where) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      if (depth >= kDeepestJson) {
        throw DataError(fmt::format("{}: nested deeper than the {} levels allowed", where_, kDeepestJson));
      }
    }
    if (event == json::parse_event_t::object_start) names_.emplace_back();
    if (event == json::parse_event_t::object_end) names_.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!names_.back().insert(name).second) {
        throw DataError(fmt::format("{}: '{}' is given twice in one object", where_, printable(name)));
      }
    }
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::set<std::string>> names_;  // of the objects that are open, the innermost last
};

}  // namespace

json parse_json(const std::string& text, const std::string& where) {
  // The parser takes a zero byte for the end.
  if (text.find('\0') != std::string::npos) {
    throw DataError(fmt::format("{}: this is no valid JSON: it has a zero byte", where));
  }
  Guard guard(where);
  try {
    return json::parse(text, [&guard](int depth, json::parse_event_t event, json& parsed) {
      return guard(depth, event, parsed);
    });
  } catch (const json::exception& error) {
    throw DataError(fmt::format("{}: this is no valid JSON: {}", where, json_problem(error)));
  }
}

std::string json_problem(const json::exception& error) {
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return printable(text.front() == '[' && end != std::string::npos ? text.substr(end + 2) : text);
}

}  // namespace renorm::record
