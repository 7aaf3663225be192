#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "cli/terminal.h"

namespace renorm::cli {
namespace {

constexpr int kDefaultColumns = 80;
constexpr int kDefaultRows = 24;
constexpr char kEscape = '\033';
constexpr const char* kDim = "\033[2m";
constexpr const char* kPlain = "\033[0m";
constexpr const char* kEraseToEnd = "\033[K";
constexpr const char* kEraseBelow = "\033[J";

void write_to_stderr(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
}

size_t end_of_escape(const std::string& text, size_t start) {
  size_t i = start + 1;
  if (i < text.size() && text[i] == '[') ++i;
  while (i < text.size() && (text[i] < '@' || text[i] > '~')) ++i;
  return std::min(i + 1, text.size());
}

size_t columns_of(const std::string& text) {
  size_t columns = 0;
  for (const char c : text) columns += continues_character(c) ? 0 : 1;
  return columns;
}

size_t columns_of(const std::vector<ProgressField>& fields) {
  size_t columns = 0;
  for (const ProgressField& field : fields) {
    columns += columns_of(field.value) + (field.label.empty() ? 0 : columns_of(field.label) + 1) + 2;
  }
  return columns - 2;  // no blanks after the last
}

}  // namespace

Progress::Progress() : on_terminal_(is_terminal(STDERR_FILENO)), colour_(wants_colour(STDERR_FILENO)) {}

Progress::~Progress() { clear(); }

// The last column stays free: a full line wraps on some terminals.
int Progress::columns() const { return std::max(1, terminal_columns(STDERR_FILENO, kDefaultColumns) - 1); }

void Progress::show_lines(const std::vector<std::string>& lines) {
  if (!on_terminal_) return;
  const auto rows = static_cast<size_t>(std::max(1, terminal_rows(STDERR_FILENO, kDefaultRows)));
  const size_t count = std::min(lines.size(), rows);
  std::string text = to_first_line();
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text += "\n";
    text += cut_to_columns(lines[i], columns()) + kEraseToEnd;
  }
  if (shown_ > count) text += kEraseBelow;
  write_to_stderr(text);
  shown_ = count;
}

// From the end of the rewritten lines.
std::string Progress::to_first_line() const {
  return shown_ > 1 ? fmt::format("\r\033[{}A", shown_ - 1) : std::string("\r");
}

void Progress::clear() {
  if (shown_ == 0) return;
  write_to_stderr(to_first_line() + kEraseToEnd + (shown_ > 1 ? kEraseBelow : ""));
  shown_ = 0;
}

void Progress::print(const std::string& line) {
  clear();
  write_to_stderr(line + "\n");
}

std::string fit_fields(std::vector<ProgressField> fields, int columns, bool colour) {
  while (fields.size() > 1 && columns_of(fields) > static_cast<size_t>(std::max(columns, 0))) {
    auto dropped = fields.begin();
    for (auto field = fields.begin(); field != fields.end(); ++field) {
      if (field->rank >= dropped->rank) dropped = field;
    }
    fields.erase(dropped);
  }
  std::string text;
  for (const ProgressField& field : fields) {
    if (!text.empty()) text += "  ";
    if (!field.label.empty() && colour) text += kDim + field.label + kPlain + " ";
    if (!field.label.empty() && !colour) text += field.label + " ";
    text += field.value;
  }
  return text;
}

std::string cut_to_columns(const std::string& text, int columns) {
  std::string kept;
  int used = 0;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == kEscape) {
      const size_t end = end_of_escape(text, i);
      kept += text.substr(i, end - i);
      i = end;
      continue;
    }
    if (!continues_character(text[i])) ++used;
    if (used <= columns) kept += text[i];
    ++i;
  }
  return kept;
}

}  // namespace renorm::cli
