#include "experiments/children.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/descriptor.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"

namespace renorm::experiments {
namespace {

constexpr const char* kThisProgram = "/proc/self/exe";
constexpr int kExecFailed = 127;
constexpr int kUnknownEnd = 127;
constexpr int64_t kMaxLog = int64_t{1} << 30;

// Between fork and exec, only calls that are safe in a signal handler.
[[noreturn]] void become(char* const* arguments, int log, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kExecFailed);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(kThisProgram, arguments);
  _exit(kExecFailed);
}

pid_t start(const std::vector<std::string>& arguments, int log) {
  std::vector<std::string> words = {"renorm"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  signal(SIGCHLD, SIG_DFL);  // if our parent ignored it, we would receive no exit codes
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(pointers.data(), log, parent);
  if (pid < 0) throw IoError(fmt::format("cannot start another process: {}", std::strerror(errno)));
  return pid;
}

}  // namespace

Child::Child(const std::vector<std::string>& arguments, const std::string& log) {
  const Descriptor file(open_file(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW));
  if (!file.valid()) throw OutputError(failure("write", log, errno));
  pid_ = start(arguments, file.get());
}

Child::Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), asked_(other.asked_) {}

Child::~Child() {
  if (pid_ < 0) return;
  ask_to_stop();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Child::ask_to_stop() {
  if (pid_ > 0 && !asked_) kill(pid_, SIGTERM);
  asked_ = true;
}

bool Child::ended(int* exit_code) {
  int status = 0;
  const pid_t found = waitpid(pid_, &status, WNOHANG);
  if (found == 0 || (found < 0 && errno == EINTR)) return false;
  pid_ = -1;
  *exit_code = kUnknownEnd;
  if (found > 0) *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

std::string last_line(const std::string& log) try {
  std::string last;
  for (const std::string& line : split(read_file(log, kMaxLog), '\n')) {
    if (!line.empty()) last = line;
  }
  constexpr const char* kPrefix = "renorm: ";
  return last.rfind(kPrefix, 0) == 0 ? last.substr(std::strlen(kPrefix)) : last;
} catch (const MissingInputError&) {
  return "";
}

}  // namespace renorm::experiments
