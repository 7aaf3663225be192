// The terminal: what it can do, and text that fits its lines.
#pragma once

#include <string>

namespace renorm::cli {

// Whether `descriptor` is a terminal on which a line can be rewritten.
bool is_terminal(int descriptor);

// Characters per line, and lines; `otherwise` if it is not a terminal or its size is unknown.
int terminal_columns(int descriptor, int otherwise);
int terminal_rows(int descriptor, int otherwise);

// Whether to use colour. See no-color.org: any value of NO_COLOR but an empty one turns it off.
bool wants_colour(int descriptor);

// The words of `text` in lines of at most `width` characters. All lines but the first start with `indent`
// blanks; `used` characters of the first line are taken.
std::string wrapped(const std::string& text, size_t used, size_t indent, size_t width);

// Prints "label      text".
void print_line(const char* label, const std::string& text);

}  // namespace renorm::cli
