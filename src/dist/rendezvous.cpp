#include "dist/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/errors.h"
#include "base/files.h"
#include "base/private_folder.h"
#include "base/text.h"
#include "dist/network.h"

namespace renorm::dist {
namespace {

constexpr const char* kTcp = "tcp://";
constexpr const char* kStore = "store";
constexpr const char* kMark = "rank-";
constexpr const char* kGuard = "guard";
constexpr int64_t kMaxMarkBytes = 1000;

// "HOST:PORT".
void set_address(const std::string& text, const std::string& what, Rendezvous* rendezvous) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    throw UsageError(fmt::format("{} must be HOST:PORT, got '{}'", what, printable(text)));
  }
  rendezvous->host = text.substr(0, colon);
  rendezvous->port = static_cast<int>(parse_integer(text.substr(colon + 1), "the port of " + what, 1, 65535));
}

// Excludes other processes of this user while the contents of the folder are judged.
class FolderGuard {
 public:
  explicit FolderGuard(const std::string& path) : file_(open_file(path, O_RDWR | O_CREAT)) {
    if (!file_.valid()) throw OutputError(failure("write", path, errno));
    while (::flock(file_.get(), LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      throw OutputError(fmt::format(
          "cannot lock '{}': {}; choose a --rendezvous on a file system with locks, or tcp://HOST:PORT",
          printable(path), std::strerror(errno)));
    }
  }

 private:
  Descriptor file_;
};

std::vector<std::string> marks_in(const std::string& folder) {
  std::vector<std::string> marks;
  for (const std::string& name : list_folder(folder)) {
    if (name.rfind(kMark, 0) == 0) marks.push_back(fmt::format("{}/{}", folder, name));
  }
  return marks;
}

// What a launch left whose processes are all gone.
void delete_if_deserted(const std::string& folder) {
  const std::vector<std::string> marks = marks_in(folder);
  for (const std::string& mark : marks) {
    if (!ProcessName::parse(read_file(mark, kMaxMarkBytes)).is_gone()) return;
  }
  for (const std::string& mark : marks) ::unlink(mark.c_str());
  ::unlink(fmt::format("{}/{}", folder, kStore).c_str());
}

std::string mark_path(const std::string& folder, int rank) {
  return fmt::format("{}/{}{}", folder, kMark, rank);
}

}  // namespace

std::string Rendezvous::text() const {
  return folder.empty() ? fmt::format("{}{}:{}", kTcp, host, port) : folder;
}

Rendezvous rendezvous_of(const Launch& launch, const std::string& spec, const std::string& run_folder) {
  Rendezvous result;
  result.is_local = launch.is_on_one_machine();
  if (spec.rfind(kTcp, 0) == 0) {
    set_address(spec.substr(std::string(kTcp).size()), "--rendezvous tcp://", &result);
  } else if (spec.find("://") != std::string::npos) {
    throw UsageError(
        fmt::format("--rendezvous must be tcp://HOST:PORT or a folder, got '{}'", printable(spec)));
  } else if (!spec.empty()) {
    result.folder = fmt::format("{}/{}{}", spec, kRendezvousPrefix, launch.job);
  } else if (launch.is_on_one_machine() && !launch.job.empty() && !launch.engine_listens) {
    result.folder = fmt::format("{}/{}{}", run_folder, kRendezvousPrefix, launch.job);
  } else if (!launch.address.empty()) {
    set_address(launch.address, "MASTER_ADDR:MASTER_PORT", &result);
  } else {
    throw UsageError(
        fmt::format("{} processes that may be on different machines need --rendezvous tcp://HOST:PORT, where "
                    "rank 0 runs on "
                    "HOST, or --rendezvous DIR, a folder that all of them share",
                    launch.size));
  }
  if (is_loopback(result.host)) result.is_local = true;
  return result;
}

MeetingPlace::MeetingPlace(std::string folder, int rank) : folder_(std::move(folder)), rank_(rank) {
  make_private_folder(folder_);
  const FolderGuard guard(fmt::format("{}/{}", folder_, kGuard));
  delete_if_deserted(folder_);
  const std::string mark = mark_path(folder_, rank);
  const Descriptor file(open_file(mark, O_WRONLY | O_CREAT | O_EXCL));
  if (!file.valid() && errno == EEXIST) {
    throw OutputError(fmt::format(
        "'{}' exists already: rank {} of another launch is there; wait for it, delete the folder, "
        "or choose another --rendezvous",
        printable(mark), rank));
  }
  const std::string process = ProcessName::own().text();
  if (!file.valid() || !write_all(file.get(), process.data(), process.size())) {
    throw OutputError(failure("write", mark, errno));
  }
}

MeetingPlace::~MeetingPlace() {
  if (has_met_ && rank_ != 0) return;
  ::unlink(mark_path(folder_, rank_).c_str());
  if (has_met_ || marks_in(folder_).empty()) remove_meeting_place(folder_);
}

std::string MeetingPlace::store_path() const { return fmt::format("{}/{}", folder_, kStore); }

void remove_meeting_place(const std::string& folder) try {
  if (!private_folder_problem(folder).empty()) return;
  for (const std::string& name : list_folder(folder)) {
    const bool is_ours = name == kStore || name == kGuard || name.rfind(kMark, 0) == 0;
    if (is_ours) ::unlink(fmt::format("{}/{}", folder, name).c_str());
  }
  ::rmdir(folder.c_str());
} catch (const std::exception&) {
  // A folder that stays behind is removed by the next run.
}

std::string ProcessName::text() const { return fmt::format("{} {} {}", id, machine, host); }

ProcessName ProcessName::parse(const std::string& text) {
  const size_t first = text.find(' ');
  const size_t second = text.find(' ', first + 1);
  if (first == std::string::npos || second == std::string::npos) return {};
  return {std::strtoll(text.c_str(), nullptr, 10), text.substr(first + 1, second - first - 1),
          text.substr(second + 1)};
}

// The machine is the boot of its system and the numbering of processes, because names of machines may be
// equal and containers have numbers of their own.
ProcessName ProcessName::own() {
  std::string boot = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code ignored;
  const std::string numbering = std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
  char host[256] = {};
  return {getpid(), boot + "/" + numbering, gethostname(host, sizeof host - 1) == 0 ? host : "unknown"};
}

// The state is the first letter after the name, which is in brackets.
bool ProcessName::is_gone() const {
  if (id == 0 || machine != own().machine) return false;
  std::ifstream file(fmt::format("/proc/{}/stat", id));
  std::string line;
  if (!std::getline(file, line)) return true;
  const size_t bracket = line.rfind(')');
  if (bracket == std::string::npos || bracket + 2 >= line.size()) return false;
  return std::string("ZXT").find(line[bracket + 2]) != std::string::npos;
}

}  // namespace renorm::dist
