#include "cli/wrapped.h"

#include <sstream>

namespace renorm::cli {

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

}  // namespace renorm::cli
