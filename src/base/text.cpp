#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <system_error>

#include "base/errors.h"

namespace renorm {
namespace {

constexpr size_t kPrintableBytes = 300;  // of longer text this much is kept
constexpr size_t kPrintableEnd = 100;    // of which so much from its end: where a path has its name

template <typename Number>
std::string in_range(Number least, Number greatest, bool below_all, bool above_all) {
  if (below_all && above_all) return "";
  if (above_all) return fmt::format(" of at least {}", least);
  if (below_all) return fmt::format(" of at most {}", greatest);
  return fmt::format(" from {} to {}", least, greatest);
}

// The number of bytes of the UTF-8 sequence at `text[i]`, 0 if there is none; its value goes to `code`.
size_t utf8_length(const std::string& text, size_t i, uint32_t* code) {
  const auto byte = [&text](size_t j) -> uint32_t { return static_cast<unsigned char>(text[j]); };
  const uint32_t first = byte(i);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (length == 0 || i + length > text.size()) return 0;
  *code = length == 1 ? first : first & (0x7fu >> length);
  for (size_t j = 1; j < length; ++j) {
    if ((byte(i + j) & 0xc0u) != 0x80u) return 0;
    *code = (*code << 6) | (byte(i + j) & 0x3fu);
  }
  const bool overlong = (length == 3 && *code < 0x800) || (length == 4 && *code < 0x10000);
  const bool surrogate = *code >= 0xd800 && *code < 0xe000;
  return overlong || surrogate || *code > 0x10ffff ? 0 : length;
}

// Control characters, line and paragraph separators, and marks that turn the direction of writing.
bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x061c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

void append_printable(const std::string& text, std::string* result) {
  for (size_t i = 0; i < text.size();) {
    uint32_t code = 0;
    const size_t length = utf8_length(text, i, &code);
    const size_t taken = length == 0 ? 1 : length;
    if (length != 0 && !is_control(code)) {
      result->append(text, i, taken);
    } else {
      for (size_t j = i; j < i + taken; ++j) {
        *result += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(text[j])));
      }
    }
    i += taken;
  }
}

// Moves a place inside a UTF-8 sequence forward to its end.
size_t character_border(const std::string& text, size_t place) {
  for (int i = 0; i < 3 && (static_cast<unsigned char>(text[place]) & 0xc0u) == 0x80u; ++i) ++place;
  return place;
}

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

int64_t parse_integer(const std::string& text, const std::string& what, int64_t least, int64_t greatest) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value >= least && value <= greatest) return value;
  using Limits = std::numeric_limits<int64_t>;
  throw UsageError(fmt::format("{} must be a whole number{}, got '{}'", what,
                               in_range(least, greatest, least == Limits::min(), greatest == Limits::max()),
                               printable(text)));
}

double parse_number(const std::string& text, const std::string& what, double least, double greatest) {
  double value = 0.0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  // The library also reads "INFINITY" and "nan(1)".
  const bool spelled = text == "inf" || text == "-inf" || std::isfinite(value);
  const bool whole = error == std::errc() && stop == end && spelled;
  if (whole && value >= least && value <= greatest) return value;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  throw UsageError(fmt::format("{} must be a number{}, got '{}'", what,
                               in_range(least, greatest, least == -kInfinity, greatest == kInfinity),
                               printable(text)));
}

std::vector<std::pair<std::string, std::string>> parse_options(const std::string& text,
                                                               const std::string& what) {
  std::vector<std::pair<std::string, std::string>> options;
  if (text.empty()) return options;
  std::set<std::string> names;
  for (const std::string& piece : split(text, ',')) {
    const size_t equals = piece.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(fmt::format("{}: options are written NAME=VALUE with commas between them, got '{}'",
                                   what, printable(piece)));
    }
    const std::string name = piece.substr(0, equals);
    if (!names.insert(name).second) {
      throw UsageError(fmt::format("{}: '{}' is given twice; give it once", what, printable(name)));
    }
    options.emplace_back(name, piece.substr(equals + 1));
  }
  return options;
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
