#include "train/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>

#include "base/errors.h"
#include "base/text.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

using Type = Setting::Type;

constexpr size_t kMaxFileBytes = 1 << 20;
const std::string kByteOrderMark = "\xEF\xBB\xBF";

// A value in the form that Setting::set reads.
struct Value {
  Type type;
  std::string text;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_hex_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// `text` without its underscores, each of which must stand between two digits.
std::optional<std::string> without_underscores(const std::string& text, bool (*is_digit)(char)) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return result;
}

// The place after the digits that start at `at`.
size_t after_digits(const std::string& text, size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

// Whether `text` is TOML's [+-]DIGITS[.DIGITS][e[+-]DIGITS]; `whole` gets whether it is an integer.
bool is_decimal(const std::string& text, bool* whole) {
  const size_t first = text[0] == '+' || text[0] == '-' ? 1 : 0;
  size_t at = after_digits(text, first);
  if (at == first || (text[first] == '0' && at > first + 1)) return false;
  *whole = at == text.size();
  if (at < text.size() && text[at] == '.') {
    const size_t point = at++;
    at = after_digits(text, at);
    if (at == point + 1) return false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (at == text.size()) return false;
    at = after_digits(text, at);
  }
  return at == text.size();
}

template <typename Number, typename... Base>
std::optional<Number> whole_number(const std::string& text, Base... base) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<Value> integer(const std::string& digits, int base) {
  const auto value = whole_number<int64_t>(digits, base);
  if (!value) return std::nullopt;
  return Value{Type::kInteger, fmt::format("{}", *value)};
}

// Nothing if `token` is no number, or one that is too large.
std::optional<Value> number(const std::string& token) {
  const bool plus = token[0] == '+';
  const std::string unsigned_token = plus || token[0] == '-' ? token.substr(1) : token;
  if (unsigned_token == "nan") return Value{Type::kNumber, "nan"};
  if (unsigned_token == "inf") return Value{Type::kNumber, plus ? "inf" : token};
  for (const auto& [prefix, base] : {std::pair("0x", 16), std::pair("0o", 8), std::pair("0b", 2)}) {
    if (token.rfind(prefix, 0) != 0) continue;
    const auto digits = without_underscores(token.substr(2), is_hex_digit);
    if (!digits || digits->empty() || !is_hex_digit((*digits)[0])) return std::nullopt;
    return integer(*digits, base);
  }
  const auto text = without_underscores(token, is_digit);
  bool whole = false;
  if (!text || !is_decimal(*text, &whole)) return std::nullopt;
  const std::string readable = plus ? text->substr(1) : *text;
  if (whole) return integer(readable, 10);
  const auto value = whole_number<double>(readable);
  if (!value) return std::nullopt;
  return Value{Type::kNumber, shortest(*value)};
}

std::string described(const Value& value) { return value.type == Type::kText ? "a string" : value.text; }

const char* expected(Type type) {
  switch (type) {
    case Type::kText:
      return "a string in quotes";
    case Type::kSwitch:
      return "true or false";
    case Type::kInteger:
      return "a whole number without quotes";
    case Type::kNumber:
      break;
  }
  return "a number without quotes";
}

// One line of a config file.
class Line {
 public:
  Line(const std::string& text, size_t number, const std::string& file)
      : text_(text), number_(number), file_(file) {}

  // Applies the setting of the line, and adds its name to `names`. Throws UsageError.
  void apply(std::vector<std::string>* names, Config* config) {
    check_characters();
    skip_blanks();
    if (at_end()) return;
    if (peek() == '[') refuse("sections are not supported; write NAME = VALUE");
    const size_t name_at = at_;
    const std::string name = read_name();
    skip_blanks();
    if (peek() == '.') refuse("settings have no dots in their names");
    if (peek() != '=' || at_ == name_at) refuse("expected NAME = VALUE");
    ++at_;
    skip_blanks();
    if (at_end()) refuse("expected a value");
    const size_t value_at = at_;
    const Value value = read_value();
    skip_blanks();
    if (!at_end()) refuse("expected the end of the line after the value");
    at_ = name_at;
    const Setting& setting = setting_of(name, *names);
    at_ = value_at;
    set(setting, value, config);
    names->push_back(name);
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool at_end() const { return at_ == text_.size() || peek() == '#'; }
  bool at_quote() const { return peek() == '"' || peek() == '\''; }

  // Columns count characters.
  [[noreturn]] void refuse(const std::string& what) const {
    const auto before = std::count_if(text_.begin(), text_.begin() + static_cast<int64_t>(at_),
                                      [](char c) { return !continues_character(c); });
    throw UsageError(fmt::format("{}:{}:{}: {}", printable(file_), number_, before + 1, what));
  }

  void check_characters() {
    for (at_ = 0; at_ < text_.size();) {
      const Character character = character_at(text_, at_);
      const bool line_end = text_[at_] == '\r' && at_ + 1 == text_.size();
      const bool control = (character.code < 0x20 && character.code != '\t') || character.code == 0x7F;
      if (!character.valid) refuse("expected UTF-8 text");
      if (control && !line_end) refuse("control characters are not allowed");
      at_ += character.length;
    }
    at_ = 0;
  }

  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\r') ++at_;
  }

  std::string read_name() {
    if (at_quote()) return read_string();
    const size_t begin = at_;
    while (is_letter(peek()) || is_digit(peek()) || peek() == '-' || peek() == '_') ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // A sign is only at the beginning or in an exponent, so there are no dates.
  Value read_value() {
    if (at_quote()) return {Type::kText, read_string()};
    const std::string wrong = "expected a number, true, false or a text in quotes";
    const size_t begin = at_;
    char last = 'e';
    for (; !at_end() && peek() != ' ' && peek() != '\t' && peek() != '\r'; ++at_) {
      const char c = peek();
      if (c == '[' || c == '{') refuse("a setting has one value, not a list or table");
      const bool sign = (c == '+' || c == '-') && (last == 'e' || last == 'E');
      if (!is_letter(c) && !is_digit(c) && c != '_' && c != '.' && !sign) refuse(wrong);
      last = c;
    }
    const std::string token = text_.substr(begin, at_ - begin);
    if (token == "true" || token == "false") return {Type::kSwitch, token};
    const std::optional<Value> value = number(token);
    if (value) return *value;
    at_ = begin;
    refuse(wrong);
  }

  std::string read_string() {
    const size_t begin = at_;
    const char quote = peek();
    if (text_.compare(at_, 3, std::string(3, quote)) == 0) {
      refuse("a text must be on one line, in one pair of quotes");
    }
    std::string result;
    for (++at_; at_ < text_.size() && peek() != quote; ++at_) {
      if (quote == '"' && peek() == '\\') {
        read_escape(&result);
      } else {
        result += peek();
      }
    }
    if (at_ >= text_.size()) {
      at_ = begin;
      refuse("missing closing quote");
    }
    ++at_;
    return result;
  }

  // Stops at the last character of the escape.
  void read_escape(std::string* result) {
    const size_t begin = at_++;
    const std::string letters = "btnfr\"\\";
    const size_t letter = letters.find(peek());
    if (at_ < text_.size() && letter != std::string::npos) {
      *result += "\b\t\n\f\r\"\\"[letter];
      return;
    }
    const size_t digits = peek() == 'u' ? 4 : peek() == 'U' ? 8 : 0;
    const auto code = whole_number<uint32_t>(text_.substr(std::min(at_ + 1, text_.size()), digits), 16);
    const bool complete = at_ + digits < text_.size();
    if (digits == 0 || !complete || !code || !append_utf8(*code, result)) {
      at_ = begin;
      refuse("expected one of the escapes \\b \\t \\n \\f \\r \\\" \\\\ \\uXXXX \\UXXXXXXXX");
    }
    at_ += digits;
  }

  const Setting& setting_of(const std::string& name, const std::vector<std::string>& names) const {
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      refuse(fmt::format("{} is repeated; give each setting once", name));
    }
    try {
      return find_setting(name);
    } catch (const UsageError& error) {
      refuse(error.what());
    }
  }

  void set(const Setting& setting, const Value& value, Config* config) const {
    const bool fits =
        value.type == setting.type || (value.type == Type::kInteger && setting.type == Type::kNumber);
    if (!fits) {
      refuse(fmt::format("{} must be {}, got {}", setting.name, expected(setting.type), described(value)));
    }
    try {
      setting.set(*config, value.text);
    } catch (const UsageError& error) {
      const std::string message = error.what();
      refuse(message.substr(message.rfind("--", 0) == 0 ? 2 : 0));
    }
  }

  const std::string& text_;
  size_t number_;
  const std::string& file_;
  size_t at_ = 0;
};

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      result += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + "\"";
}

}  // namespace

std::vector<std::string> read_toml(const std::string& text, const std::string& file, Config* config) {
  if (text.size() > kMaxFileBytes) {
    throw UsageError(fmt::format("{}:1:1: a config file may have at most {} bytes, got {}", printable(file),
                                 kMaxFileBytes, text.size()));
  }
  Config result = *config;
  std::vector<std::string> names;
  const bool marked = text.rfind(kByteOrderMark, 0) == 0;
  size_t number = 0;
  for (const std::string& line : split(marked ? text.substr(kByteOrderMark.size()) : text, '\n')) {
    Line(line, ++number, file).apply(&names, &result);
  }
  *config = result;
  return names;
}

std::string to_toml(const Config& config) {
  std::string text;
  std::string group;
  for (const Setting& setting : settings()) {
    if (setting.group != group) {
      text += fmt::format("{}# {}\n", text.empty() ? "" : "\n", setting.group);
      group = setting.group;
    }
    const std::string value = setting.get(config);
    text += fmt::format("{} = {}\n", setting.name, setting.type == Type::kText ? quoted(value) : value);
  }
  return text;
}

}  // namespace renorm::train
