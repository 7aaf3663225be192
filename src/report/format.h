// Text, bytes and figures in the forms that a page shows: safe and readable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "record/results.h"

namespace renorm::report {

// For text and attributes within quotes. Bytes that are not UTF-8, control characters but for tab and
// newline, and characters that change the direction of writing become U+FFFD.
std::string escaped(const std::string& text);

// At most so many characters, the last one "…" if some are left out. Not escaped.
std::string shortened(const std::string& text, size_t max_characters);

// JSON of the results in ASCII for a <script type="application/json">: no '<' in it.
std::string json_for_script(const record::Results& results);

std::string base64(const std::string& bytes);

constexpr const char* kNothing = "–";  // for a missing value

// "1 arm", "3 arms".
std::string counted(size_t number, const std::string& noun);

// 78.34 -> "78.3"; "NaN" if it is not finite.
std::string percent(double value);

// "78.3 ± 0.4", "78.3" of one seed, "–" of none.
std::string percent(const record::Measure& measure);

// The same with the sign of the mean: "+1.3 ± 0.4".
std::string signed_points(const record::Measure& difference);

// The same in whole steps.
std::string steps(const record::Measure& measure);

// duration_text; "–" if it is not known.
std::string duration(double seconds);

}  // namespace renorm::report
