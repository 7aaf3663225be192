// What the terminal can do.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace renorm::cli {

// Whether `descriptor` is a terminal on which a line can be rewritten.
inline bool is_terminal(int descriptor) {
  const char* kind = std::getenv("TERM");
  return isatty(descriptor) != 0 && (kind == nullptr || std::strcmp(kind, "dumb") != 0);
}

// Characters in a line; `otherwise` if it is no terminal or does not say.
inline int terminal_columns(int descriptor, int otherwise) {
  winsize size = {};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

// Lines on the screen, as above.
inline int terminal_rows(int descriptor, int otherwise) {
  winsize size = {};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : otherwise;
}

// See no-color.org: any value but an empty one turns colour off.
inline bool wants_colour(int descriptor) {
  const char* no_colour = std::getenv("NO_COLOR");
  return is_terminal(descriptor) && (no_colour == nullptr || *no_colour == '\0');
}

}  // namespace renorm::cli
