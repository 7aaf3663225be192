#pragma once

#include <string>

namespace renorm::cli {

// The words of `text` in lines of at most `width`; all but the first start with `indent` blanks, and `used`
// characters of the first are taken.
std::string wrapped(const std::string& text, size_t used, size_t indent, size_t width);

}  // namespace renorm::cli
