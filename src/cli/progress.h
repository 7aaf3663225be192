// One line on the terminal that says what is going on.
#pragma once

#include <string>

namespace renorm::cli {

// Shows the latest text on standard error while it is a terminal; otherwise silent. The line is gone when
// the object is.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& text);
  void clear();

 private:
  bool on_terminal_;
};

}  // namespace renorm::cli
