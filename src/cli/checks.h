// Checks of flags that the parser does not have.
#pragma once

#include <string>

namespace renorm::cli {

// For unsigned numbers, which the parser lets wrap around. "" if all is well.
inline std::string not_negative(const std::string& text) {
  return !text.empty() && text[0] == '-' ? "must not be negative, got " + text : "";
}

}  // namespace renorm::cli
