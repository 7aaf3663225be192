#include "cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace renorm::cli {

Progress::Progress() : on_terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() { clear(); }

void Progress::show(const std::string& text) {
  if (!on_terminal_) return;
  // Carriage return, text, then erase what is left of the longer line before.
  fmt::print(stderr, "\r{}\033[K", text);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!on_terminal_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

}  // namespace renorm::cli
