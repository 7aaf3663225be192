#include "dist/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

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

// "HOST:PORT".
void set_address(const std::string& text, const std::string& what, Rendezvous* rendezvous) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    throw UsageError(fmt::format("{} must be HOST:PORT, got '{}'", what, printable(text)));
  }
  rendezvous->host = text.substr(0, colon);
  rendezvous->port = static_cast<int>(parse_integer(text.substr(colon + 1), "the port of " + what, 1, 65535));
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
  } else if (!launch.address.empty()) {
    set_address(launch.address, "MASTER_ADDR:MASTER_PORT", &result);
  } else if (launch.is_on_one_machine() && !launch.job.empty()) {
    result.folder = fmt::format("{}/{}{}", run_folder, kRendezvousPrefix, launch.job);
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
  const std::string mark = mark_path(folder_, rank);
  const Descriptor file(open_file(mark, O_WRONLY | O_CREAT | O_EXCL));
  if (file.valid()) return;
  if (errno != EEXIST) throw OutputError(failure("write", mark, errno));
  throw OutputError(
      fmt::format("'{}' exists already: rank {} of another launch has met there; delete the folder or choose "
                  "another --rendezvous",
                  printable(mark), rank));
}

MeetingPlace::~MeetingPlace() {
  if (rank_ == 0) remove_meeting_place(folder_);
}

std::string MeetingPlace::store_path() const { return fmt::format("{}/{}", folder_, kStore); }

void remove_meeting_place(const std::string& folder) try {
  if (!private_folder_problem(folder).empty()) return;
  for (const std::string& name : list_folder(folder)) {
    const bool is_ours = name == kStore || name.rfind(kMark, 0) == 0;
    if (is_ours) ::unlink(fmt::format("{}/{}", folder, name).c_str());
  }
  ::rmdir(folder.c_str());
} catch (const std::exception&) {
  // A folder that stays behind is removed by the next run.
}

}  // namespace renorm::dist
