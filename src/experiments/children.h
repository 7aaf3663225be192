// Other processes of this program, side by side. No torch.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace renorm::experiments {

// A child process in a process group of its own, so that Ctrl-C reaches it through its parent only. It gets
// SIGTERM if the parent dies. Its output is appended to a log.
class Child {
 public:
  // `arguments` without the program's name, which is this program. Throws OutputError if the log cannot be
  // opened, IoError if no process can be made.
  Child(const std::vector<std::string>& arguments, const std::string& log);
  ~Child();  // asks it to stop and waits
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  // SIGTERM, once: at the first `renorm train` saves itself, a second would end it at once.
  void ask_to_stop();
  // Whether it has ended; then its exit code, or 128 + the signal that ended it.
  bool ended(int* exit_code);

 private:
  pid_t pid_;
  bool asked_ = false;
};

// The last line of a log that is not empty, without "renorm: "; "" if there is none.
std::string last_line(const std::string& log);

}  // namespace renorm::experiments
