// Child processes of this program.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace renorm::experiments {

// A child process in its own process group, so that Ctrl-C reaches it through its parent only. It receives
// SIGTERM if the parent dies. Its output is appended to a log.
class Child {
 public:
  // Runs this program with `arguments`. Throws OutputError if the log cannot be opened or is a link, IoError
  // if no process can be started.
  Child(const std::vector<std::string>& arguments, const std::string& log);
  ~Child();  // asks it to stop and waits
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  // Sends SIGTERM once: `renorm train` saves its state at the first, and ends at once at a second.
  void ask_to_stop();
  // Whether it has ended; then sets its exit code, or 128 + the signal that ended it.
  bool ended(int* exit_code);

 private:
  pid_t pid_;
  bool asked_ = false;
};

// The last line of a log that is not empty, without "renorm: "; "" if there is none, or no log.
std::string last_line(const std::string& log);

}  // namespace renorm::experiments
