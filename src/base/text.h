// Strict reading of the small languages of flags and specs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace renorm {

// Pieces between separators; one empty piece for empty text.
std::vector<std::string> split(const std::string& text, char separator);

// "mnist:DIR" -> {"mnist", "DIR"}; without a colon the second is empty.
std::pair<std::string, std::string> split_spec(const std::string& text);

// The whole text as a decimal integer or finite-or-infinite number ("inf" allowed) within [least, greatest].
// Throws UsageError "WHAT must be a whole number from 1 to 9, got 'x'"; a limit at the end of the type's
// range is not mentioned.
int64_t parse_integer(const std::string& text, const std::string& what, int64_t least, int64_t greatest);
double parse_number(const std::string& text, const std::string& what, double least, double greatest);

// "a=1,b=2" in order, nothing for empty text. Throws UsageError for a piece without '=', an empty name or a
// name given twice; `what` starts the message.
std::vector<std::pair<std::string, std::string>> parse_options(const std::string& text,
                                                               const std::string& what);

// The shortest decimal text that reads back as the same double: 0.1, 1e-08, inf.
std::string shortest(double value);

// 1234567 -> "1,234,567"
std::string grouped(int64_t number);

// A word as a shell reads it: in quotes if it needs them.
std::string shell_quoted(const std::string& word);

// Text from outside made safe for one line of a terminal: control characters, those that turn the direction
// of writing, and bytes that are not UTF-8 become \xNN; the middle of long text is left out.
std::string printable(const std::string& text);

}  // namespace renorm
