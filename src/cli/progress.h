// Progress of a long command: lines that are rewritten, and lines that stay.
#pragma once

#include <string>
#include <vector>

namespace renorm::cli {

// Shows the latest text on standard error if that is a terminal; otherwise only lines that stay are written.
// The destructor removes the rewritten lines. Write errors are ignored: they do not end a run.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool on_terminal() const { return on_terminal_; }
  bool colour() const { return colour_; }
  int columns() const;  // available to show(); windows may be resized

  // Replaces the rewritten lines. Ends of lines and last lines that do not fit are cut off.
  void show(const std::string& text) { show_lines({text}); }
  void show_lines(const std::vector<std::string>& lines);
  void clear();
  // Writes a line that stays. The next show() writes below it.
  void print(const std::string& line);

 private:
  std::string to_first_line() const;

  bool on_terminal_;
  bool colour_;
  size_t shown_ = 0;  // lines
};

// A named figure of the progress line.
struct ProgressField {
  std::string label;  // may be empty
  std::string value;
  int rank;  // the highest rank is dropped first, of equals the right one
};

// "label value  label value" in the given order, without fields of the highest ranks until it fits `columns`.
// One field always stays. Labels are dimmed with `colour`.
std::string fit_fields(std::vector<ProgressField> fields, int columns, bool colour);

// The first `columns` characters of UTF-8 text. Colour sequences take no place and are kept.
std::string cut_to_columns(const std::string& text, int columns);

}  // namespace renorm::cli
