// Text: strict reading of the small languages of flags and specs, hints for misspelled names, UTF-8, and text
// that is safe to print.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace renorm {

// Pieces between separators; one empty piece for empty text.
std::vector<std::string> split(const std::string& text, char separator);

// "mnist:DIR" -> {"mnist", "DIR"}; without a colon the second is empty.
std::pair<std::string, std::string> split_spec(const std::string& text);

// The whole text as a decimal integer or a number ("inf" allowed, NaN not) within [min, max]. Throws
// UsageError "WHAT must be a whole number from 1 to 9, got 'x'"; a limit at the end of the type's range is
// not mentioned.
int64_t parse_integer(const std::string& text, const std::string& what, int64_t min, int64_t max);
double parse_number(const std::string& text, const std::string& what, double min, double max);

// "a=1,b=2" in order; empty for empty text. Throws UsageError for a piece without '=', an empty name or a
// repeated name; `what` starts the message.
std::vector<std::pair<std::string, std::string>> parse_options(const std::string& text,
                                                               const std::string& what);

// The candidate with the fewest single-character edits from `word`, the first of equals. "" if there is none
// or if more than half of the word would have to change.
std::string nearest_name(const std::string& word, const std::vector<std::string>& candidates);

// The end of a message about an unknown name: "; did you mean 'iid'?" or, if nothing is near, "; there are
// iid, labels, blocks".
std::string name_hint(const std::string& word, const std::vector<std::string>& candidates);

// "unknown optimizer 'adam'; did you mean 'adamw'?"
std::string unknown_name(const std::string& what, const std::string& word,
                         const std::vector<std::string>& candidates);

// The shortest decimal text that reads back as the same double: 0.1, 1e-08, inf.
std::string shortest(double value);

// 1234567 -> "1,234,567"
std::string grouped(int64_t number);

// One shell word, quoted if necessary.
std::string shell_quoted(const std::string& word);

// A character of UTF-8 text (table 3-7 of the Unicode standard), or bytes that are not one.
struct Character {
  uint32_t code = 0;
  size_t length = 1;  // in bytes; of an invalid one, those that could have started a character, at least 1
  bool valid = false;
};
Character character_at(const std::string& text, size_t place);

// Whether `c` is the second or a later byte of a character.
bool continues_character(char c);

bool is_utf8(const std::string& text);

// Returns false, and appends nothing, if Unicode has no such character.
bool append_utf8(uint32_t code, std::string* text);

// Control characters, line and paragraph separators, and marks that change the direction of writing.
bool is_control(uint32_t code);

// Text from outside made safe for one line of a terminal: control characters and bytes that are not UTF-8
// become \xNN; the middle of long text is left out.
std::string printable(const std::string& text);

}  // namespace renorm
