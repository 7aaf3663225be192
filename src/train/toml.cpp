#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <tuple>

#include "base/errors.h"
#include "base/text.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

constexpr size_t kLongestFile = 1 << 20;

[[noreturn]] void refuse(const std::string& file, const toml::source_position& at, const std::string& what) {
  throw UsageError(fmt::format("{}:{}:{}: {}", printable(file), at.line, at.column, what));
}

// A config file is lines NAME = VALUE. toml++ 3.3 is not asked to read anything else: some characters outside
// ASCII that are not in quotes, some broken sections and dates, and deep nesting lead it to undefined
// behaviour.
class LineCheck {
 public:
  LineCheck(const std::string& line, toml::source_index number, const std::string& file)
      : line_(line), number_(number), file_(file) {}

  void run() {
    skip_blanks();
    if (at_end()) return;
    if (peek() == '[') stop("settings stand alone, without sections: NAME = VALUE");
    pass_name();
    skip_blanks();
    if (peek() == '.') stop("settings have no dots in their names");
    if (peek() != '=') stop("expected NAME = VALUE");
    ++at_;
    skip_blanks();
    if (at_end()) stop("expected a value");
    pass_value();
    skip_blanks();
    if (!at_end()) stop("expected the end of the line after the value");
  }

 private:
  char peek() const { return at_ < line_.size() ? line_[at_] : '\0'; }
  bool at_end() const { return at_ == line_.size() || peek() == '#'; }
  bool at_mark() const { return peek() == '"' || peek() == '\''; }

  // Columns count characters, as toml++ does.
  [[noreturn]] void stop(const std::string& what) const {
    const auto is_first = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
    const auto before = std::count_if(line_.begin(), line_.begin() + static_cast<int64_t>(at_), is_first);
    refuse(file_, {number_, static_cast<toml::source_index>(before + 1)}, what);
  }

  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || (peek() == '\r' && at_ + 1 == line_.size())) ++at_;
  }

  void pass_name() {
    if (at_mark()) return pass_string();
    while (std::isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '-' || peek() == '_') ++at_;
  }

  // Numbers, true and false. A sign is only at the beginning or in an exponent, so there are no dates.
  void pass_value() {
    if (at_mark()) return pass_string();
    char last = 'e';
    for (; !at_end() && peek() != ' ' && peek() != '\t' && peek() != '\r'; ++at_) {
      const char c = peek();
      if (c == '[' || c == '{') stop("a setting has one value, not a list or table");
      const bool sign = (c == '+' || c == '-') && (last == 'e' || last == 'E');
      const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
      if (!plain && !sign) stop("expected a number, true, false or a text in quotes");
      last = c;
    }
  }

  void pass_string() {
    const char mark = peek();
    const size_t begin = at_;
    if (line_.compare(at_, 3, std::string(3, mark)) == 0)
      stop("a text must be on one line, in one pair of quotes");
    for (++at_; at_ < line_.size() && peek() != mark; ++at_) {
      if (mark == '"' && peek() == '\\') ++at_;
    }
    if (at_ >= line_.size()) {
      at_ = begin;
      stop("a text that does not end on its line");
    }
    ++at_;
  }

  const std::string& line_;
  toml::source_index number_;
  const std::string& file_;
  size_t at_ = 0;
};

void check_lines(const std::string& text, const std::string& file) {
  const std::string byte_order_mark = "\xEF\xBB\xBF";
  toml::source_index number = 0;
  for (std::string line : split(text, '\n')) {
    ++number;
    if (number == 1 && line.rfind(byte_order_mark, 0) == 0) line = line.substr(byte_order_mark.size());
    LineCheck(line, number, file).run();
  }
}

// "Error while parsing key-value pair: cannot redefine ..." is toml++'s way to put it.
std::string translated(const toml::parse_error& error) {
  std::string text(error.description());
  const std::string opening = "Error while parsing ";
  if (text.rfind(opening, 0) == 0) text = text.substr(opening.size());
  if (text.find("cannot redefine existing") != std::string::npos) text += "; give each setting once";
  return "not valid TOML: " + printable(text);
}

toml::table parse(const std::string& text, const std::string& file) {
  if (text.size() > kLongestFile) {
    throw UsageError(fmt::format("{}:1:1: a config file may have {} bytes, got {}", printable(file),
                                 kLongestFile, text.size()));
  }
  check_lines(text, file);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    refuse(file, error.source().begin, translated(error));
  } catch (const std::exception& error) {
    throw UsageError(fmt::format("{}: cannot be read as TOML: {}", printable(file), printable(error.what())));
  }
}

std::string name_of(const toml::node& value) {
  if (value.is_string()) return "a string";
  if (value.is_integer()) return fmt::format("{}", value.as_integer()->get());
  if (value.is_floating_point()) return shortest(value.as_floating_point()->get());
  if (value.is_boolean()) return value.as_boolean()->get() ? "true" : "false";
  return "a date or time";
}

// What the setting's `set` reads, or a refusal of the type.
std::string text_of(const Setting& setting, const toml::node& value, const std::string& file) {
  const auto wrong = [&](const char* expected) {
    refuse(file, value.source().begin,
           fmt::format("{} must be {}, got {}", setting.name, expected, name_of(value)));
  };
  switch (setting.type) {
    case Setting::Type::kText:
      if (!value.is_string()) wrong("a string in quotes");
      return value.as_string()->get();
    case Setting::Type::kSwitch:
      if (!value.is_boolean()) wrong("true or false");
      return name_of(value);
    case Setting::Type::kInteger:
      if (!value.is_integer()) wrong("a whole number without quotes");
      return name_of(value);
    case Setting::Type::kNumber:
      if (!value.is_integer() && !value.is_floating_point()) wrong("a number without quotes");
      return name_of(value);
  }
  return "";
}

void apply(const toml::key& key, const toml::node& value, const std::string& file, Config& config) {
  const std::string name(key.str());
  const Setting* setting = nullptr;
  try {
    setting = &find_setting(name);
  } catch (const UsageError& error) {
    refuse(file, key.source().begin, error.what());
  }
  const std::string text = text_of(*setting, value, file);
  try {
    setting->set(config, text);
  } catch (const UsageError& error) {
    const std::string message = error.what();
    refuse(file, value.source().begin, message.substr(message.rfind("--", 0) == 0 ? 2 : 0));
  }
}

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
  const toml::table table = parse(text, file);
  std::vector<std::pair<const toml::key*, const toml::node*>> entries;
  for (const auto& [key, value] : table) entries.emplace_back(&key, &value);
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    const toml::source_position& first = a.first->source().begin;
    const toml::source_position& second = b.first->source().begin;
    return std::tie(first.line, first.column) < std::tie(second.line, second.column);
  });
  Config result = *config;
  std::vector<std::string> names;
  for (const auto& [key, value] : entries) {
    apply(*key, *value, file, result);
    names.emplace_back(key->str());
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
    text +=
        fmt::format("{} = {}\n", setting.name, setting.type == Setting::Type::kText ? quoted(value) : value);
  }
  return text;
}

}  // namespace renorm::train
