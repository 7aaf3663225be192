#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace renorm::cli {

bool is_terminal(int descriptor) {
  const char* kind = std::getenv("TERM");
  return isatty(descriptor) != 0 && (kind == nullptr || std::strcmp(kind, "dumb") != 0);
}

int terminal_columns(int descriptor, int otherwise) {
  winsize size = {};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

int terminal_rows(int descriptor, int otherwise) {
  winsize size = {};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : otherwise;
}

bool wants_colour(int descriptor) {
  const char* no_colour = std::getenv("NO_COLOR");
  return is_terminal(descriptor) && (no_colour == nullptr || *no_colour == '\0');
}

std::string wrapped(const std::string& text, size_t used, size_t indent, size_t width) {
  std::string lines;
  std::istringstream words(text);
  size_t column = used;
  for (std::string word; words >> word;) {
    const bool starts = lines.empty();
    if (!starts && column + 1 + word.size() > width) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!starts) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
  }
  return lines;
}

void print_line(const char* label, const std::string& text) { fmt::print("{:<10} {}\n", label, text); }

}  // namespace renorm::cli
