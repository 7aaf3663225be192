#include "base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>
#include <system_error>

#include "base/errors.h"

namespace renorm {
namespace {

constexpr size_t kPrintableBytes = 300;  // longer text is cut to this much
constexpr size_t kPrintableEnd = 100;    // taken from its end, where a path has its name

template <typename Number>
std::string in_range(Number min, Number max, bool below_all, bool above_all) {
  if (below_all && above_all) return "";
  if (above_all) return fmt::format(" of at least {}", min);
  if (below_all) return fmt::format(" of at most {}", max);
  return fmt::format(" from {} to {}", min, max);
}

void append_printable(const std::string& text, std::string* result) {
  for (size_t i = 0; i < text.size();) {
    const Character character = character_at(text, i);
    if (character.valid && !is_control(character.code)) {
      result->append(text, i, character.length);
    } else {
      for (size_t j = i; j < i + character.length; ++j) {
        *result += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(text[j])));
      }
    }
    i += character.length;
  }
}

// Moves a place inside a character forward to its end.
size_t character_border(const std::string& text, size_t place) {
  for (int i = 0; i < 3 && continues_character(text[place]); ++i) ++place;
  return place;
}

// Levenshtein distance, one row of the table at a time.
size_t edits_between(const std::string& from, const std::string& to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replace = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

size_t difference(size_t a, size_t b) { return a > b ? a - b : b - a; }

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  size_t begin = 0;
  for (size_t end = text.find(separator); end != std::string::npos; end = text.find(separator, begin)) {
    pieces.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

std::pair<std::string, std::string> split_spec(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

int64_t parse_integer(const std::string& text, const std::string& what, int64_t min, int64_t max) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value >= min && value <= max) return value;
  using Limits = std::numeric_limits<int64_t>;
  throw UsageError(fmt::format("{} must be a whole number{}, got '{}'", what,
                               in_range(min, max, min == Limits::min(), max == Limits::max()),
                               printable(text)));
}

double parse_number(const std::string& text, const std::string& what, double min, double max) {
  double value = 0.0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  // The library also reads "INFINITY" and "nan(1)".
  const bool spelled = text == "inf" || text == "-inf" || std::isfinite(value);
  const bool whole = error == std::errc() && stop == end && spelled;
  if (whole && value >= min && value <= max) return value;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  throw UsageError(fmt::format("{} must be a number{}, got '{}'", what,
                               in_range(min, max, min == -kInfinity, max == kInfinity), printable(text)));
}

std::vector<std::pair<std::string, std::string>> parse_options(const std::string& text,
                                                               const std::string& what) {
  std::vector<std::pair<std::string, std::string>> options;
  if (text.empty()) return options;
  std::set<std::string> names;
  for (const std::string& piece : split(text, ',')) {
    const size_t equals = piece.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(fmt::format("{}: options must be NAME=VALUE, separated by commas, got '{}'", what,
                                   printable(piece)));
    }
    const std::string name = piece.substr(0, equals);
    if (!names.insert(name).second) {
      throw UsageError(fmt::format("{}: '{}' is given twice; give it once", what, printable(name)));
    }
    options.emplace_back(name, piece.substr(equals + 1));
  }
  return options;
}

std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t fewest = word.size() / 2 + 1;
  for (const std::string& candidate : candidates) {
    // An edit changes the length by at most one. This also makes a word of a megabyte cost nothing.
    if (difference(word.size(), candidate.size()) >= fewest) continue;
    const size_t edits = edits_between(word, candidate);
    if (edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string name_hint(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_name(word, candidates);
  if (!nearest.empty()) return fmt::format("; did you mean '{}'?", nearest);
  if (candidates.empty()) return "";
  if (candidates.size() == 1) return fmt::format("; there is only {}", candidates.front());
  return fmt::format("; there are {}", fmt::join(candidates, ", "));
}

std::string unknown_name(const std::string& what, const std::string& word,
                         const std::vector<std::string>& candidates) {
  return fmt::format("unknown {} '{}'{}", what, printable(word), name_hint(word, candidates));
}

std::string shortest(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t place = digits.size(); place > first + 3;) {
    place -= 3;
    digits.insert(place, ",");
  }
  return digits;
}

std::string shell_quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("/._-+,:=@%", c) != nullptr;
  });
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// By table 3-7 of the Unicode standard: only the second byte has limits of its own.
Character character_at(const std::string& text, size_t place) {
  const auto byte = [&](size_t i) -> uint32_t {
    return place + i < text.size() ? static_cast<unsigned char>(text[place + i]) : 0u;
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1, true};
  if (first < 0xc2 || first > 0xf4) return {};
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  const uint32_t min_second = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint32_t max_second = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < min_second || byte(1) > max_second) return {};
  uint32_t code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0u) != 0x80u) return {0, i, false};
    code = (code << 6) | (byte(i) & 0x3fu);
  }
  return {code, length, true};
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u; }

bool is_utf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const Character character = character_at(text, i);
    if (!character.valid) return false;
    i += character.length;
  }
  return true;
}

bool append_utf8(uint32_t code, std::string* text) {
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (surrogate || code > 0x10ffff) return false;
  const size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  constexpr uint32_t kFirst[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (size_t i = length; i-- > 0;) {
    const uint32_t bits = code >> (6 * i);
    const bool first = i + 1 == length;
    *text += static_cast<char>(first ? kFirst[length] | bits : 0x80u | (bits & 0x3fu));
  }
  return true;
}

bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

std::string printable(const std::string& text) {
  std::string result;
  if (text.size() <= kPrintableBytes) {
    append_printable(text, &result);
    return result;
  }
  append_printable(text.substr(0, character_border(text, kPrintableBytes - kPrintableEnd)), &result);
  result += " ... ";
  append_printable(text.substr(character_border(text, text.size() - kPrintableEnd)), &result);
  return result;
}

}  // namespace renorm
