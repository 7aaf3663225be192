#include "report/encode.h"

#include <cstdint>
#include <nlohmann/json.hpp>

namespace renorm::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD

// nlohmann-json decides what is UTF-8, as it does for the results file.
std::string valid_utf8(const std::string& text) {
  const std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

// U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069: three bytes each. `text` is UTF-8.
bool turns_direction(const std::string& text, size_t place) {
  if (text.compare(place, 2, "\xe2\x80") == 0) {
    const auto last = static_cast<unsigned char>(text[place + 2]);
    return last == 0x8e || last == 0x8f || (last >= 0xaa && last <= 0xae);
  }
  if (text.compare(place, 2, "\xe2\x81") != 0) return false;
  const auto last = static_cast<unsigned char>(text[place + 2]);
  return last >= 0xa6 && last <= 0xa9;
}

// U+0080 to U+009F: two bytes each. `text` is UTF-8.
bool is_high_control(const std::string& text, size_t place) {
  return text[place] == '\xc2' && static_cast<unsigned char>(text[place + 1]) < 0xa0;
}

std::string escaped_character(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      break;
  }
  const auto code = static_cast<unsigned char>(c);
  const bool control = (code < 0x20 && c != '\t' && c != '\n') || code == 0x7f;
  return control ? kReplacement : std::string(1, c);
}

}  // namespace

std::string escaped(const std::string& text) {
  const std::string valid = valid_utf8(text);
  std::string result;
  for (size_t i = 0; i < valid.size(); ++i) {
    if (turns_direction(valid, i)) {
      result += kReplacement;
      i += 2;
    } else if (is_high_control(valid, i)) {
      result += kReplacement;
      i += 1;
    } else {
      result += escaped_character(valid[i]);
    }
  }
  return result;
}

std::string json_for_script(const record::Results& results) {
  const std::string plain = Json::parse(record::to_json(results)).dump(-1, ' ', true);
  std::string result;
  result.reserve(plain.size());
  // Outside strings JSON has no '<', and within them the escape is the same character.
  for (const char c : plain) {
    if (c == '<') {
      result += "\\u003c";
    } else {
      result += c;
    }
  }
  return result;
}

std::string base64(const std::string& bytes) {
  constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string result;
  result.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8u | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      result += i + k <= bytes.size() ? kDigits[group >> (18u - 6u * k) & 63u] : '=';
    }
  }
  return result;
}

}  // namespace renorm::report
