// Looks into the text of a page.
#pragma once

#include <string>

namespace renorm::report::testing {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t i = text.find(part); i != std::string::npos; i = text.find(part, i + part.size())) ++found;
  return found;
}

// Between the first `begin` and the next `end`.
inline std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  if (from == std::string::npos) return "";
  const size_t to = text.find(end, from + begin.size());
  return text.substr(from + begin.size(), to - from - begin.size());
}

// The page without the text of scripts and styles, which are ours and the charting library's.
inline std::string markup(std::string page) {
  for (const char* name : {"script", "style"}) {
    const std::string end = std::string("</") + name + ">";
    size_t from = 0;
    while ((from = page.find(std::string("<") + name, from)) != std::string::npos) {
      const size_t to = page.find(end, from);
      if (to == std::string::npos) return "not closed: " + std::string(name);
      page.erase(from, to + end.size() - from);
    }
  }
  return page;
}

}  // namespace renorm::report::testing
