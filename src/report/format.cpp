#include "report/format.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/timing.h"

namespace renorm::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD

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
      return std::string(1, c);
  }
}

constexpr double kMaxWhole = 9e15;  // a double holds every whole number up to here

std::string whole(double value) {
  if (!(std::fabs(value) < kMaxWhole)) return "NaN";
  return grouped(std::llround(value));
}

template <typename Format>
std::string with_spread(const record::Measure& measure, const Format& format) {
  if (measure.values.empty()) return kNothing;
  if (measure.values.size() == 1) return format(measure.mean);
  return fmt::format("{} ± {}", format(measure.mean), format(measure.spread));
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const Character character = character_at(text, i);
    const bool is_space = text[i] == '\t' || text[i] == '\n';
    if (!character.valid || (is_control(character.code) && !is_space)) {
      result += kReplacement;
    } else if (character.length == 1) {
      result += escaped_character(text[i]);
    } else {
      result.append(text, i, character.length);
    }
    i += character.length;
  }
  return result;
}

std::string shortened(const std::string& text, size_t max_characters) {
  size_t characters = 0;
  size_t last = 0;  // where the last character that may stay begins
  for (size_t i = 0; i < text.size(); i += character_at(text, i).length) {
    if (++characters == max_characters) last = i;
    if (characters > max_characters) return text.substr(0, last) + "…";
  }
  return text;
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

std::string counted(size_t number, const std::string& noun) {
  return fmt::format("{} {}{}", grouped(static_cast<int64_t>(number)), noun, number == 1 ? "" : "s");
}

std::string percent(double value) { return std::isfinite(value) ? fmt::format("{:.1f}", value) : "NaN"; }

std::string percent(const record::Measure& measure) {
  return with_spread(measure, [](double value) { return percent(value); });
}

std::string signed_points(const record::Measure& difference) {
  return (difference.mean > 0.0 && !difference.values.empty() ? "+" : "") + percent(difference);
}

std::string steps(const record::Measure& measure) { return with_spread(measure, whole); }

std::string duration(double seconds) {
  return std::isfinite(seconds) && seconds >= 0.0 ? duration_text(seconds) : kNothing;
}

}  // namespace renorm::report
