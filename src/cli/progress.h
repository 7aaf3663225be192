// What a long command shows while it works: lines that are rewritten, and lines that stay.
#pragma once

#include <string>
#include <vector>

namespace renorm::cli {

// Shows the latest text on standard error while it is a terminal; otherwise only lines that stay are written.
// The rewritten lines are gone when the object is. Errors of writing are ignored: a run does not end because
// nobody looks.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool on_terminal() const { return on_terminal_; }
  bool colour() const { return colour_; }
  int columns() const;  // that a text for show() may use; asked anew, because windows change

  // Replaces what is shown. What does not fit is cut off: ends of lines, and lines at the end.
  void show(const std::string& text) { show_lines({text}); }
  void show_lines(const std::vector<std::string>& lines);
  void clear();
  // A line that stays; what is rewritten goes on below it at the next show().
  void print(const std::string& line);

 private:
  std::string to_first_line() const;

  bool on_terminal_;
  bool colour_;
  size_t shown_ = 0;  // lines
};

// A named figure in the line.
struct ProgressField {
  std::string label;  // may be empty
  std::string value;
  int rank;  // 0 stays longest; of equals the right one goes first
};

// "label value  label value" in the given order, without the fields of the highest ranks that make it longer
// than `columns`; one field always stays. Labels are dimmed with `colour`.
std::string fit_fields(std::vector<ProgressField> fields, int columns, bool colour);

// The first `columns` characters of UTF-8 text. Colour sequences take no place and are kept.
std::string cut_to_columns(const std::string& text, int columns);

}  // namespace renorm::cli
