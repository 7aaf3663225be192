// Text and bytes from outside in the forms that are safe inside a page.
#pragma once

#include <string>

#include "record/results.h"

namespace renorm::report {

// For text and attributes within quotes. Bytes that are not UTF-8, control characters but for tab and
// newline, and characters that change the direction of writing become U+FFFD.
std::string escaped(const std::string& text);

// JSON of the results in ASCII for a <script type="application/json">: no '<' in it.
std::string json_for_script(const record::Results& results);

std::string base64(const std::string& bytes);

}  // namespace renorm::report
