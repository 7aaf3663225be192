// Where the processes of a launch meet: a folder, or an address of the first of them.
#pragma once

#include <string>

#include "dist/launch.h"

namespace renorm::dist {

// Either a folder or a host and its port.
struct Rendezvous {
  std::string folder;
  std::string host;
  int port = 0;
  bool is_local = false;  // all processes are on this machine

  std::string text() const;  // "tcp://HOST:PORT" or the folder
};

// `spec` is "tcp://HOST:PORT", a folder, or empty: then the address of the launch, or, on one machine, a
// folder inside `run_folder`. Throws UsageError.
Rendezvous rendezvous_of(const Launch& launch, const std::string& spec, const std::string& run_folder);

// The names of folders made for a rendezvous start with it.
constexpr const char* kRendezvousPrefix = ".rendezvous-";

// The mark of this process in the folder of a rendezvous. Creates the folder, for this user alone.
class MeetingPlace {
 public:
  // Throws OutputError: the folder belongs to another user, cannot be made, or has the mark of an earlier
  // launch.
  MeetingPlace(std::string folder, int rank);
  // Rank 0 deletes the folder.
  ~MeetingPlace();
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  const std::string& folder() const { return folder_; }
  std::string store_path() const;

 private:
  std::string folder_;
  int rank_;
};

// Deletes the folder of a rendezvous if it is this user's and holds nothing else.
void remove_meeting_place(const std::string& folder);

}  // namespace renorm::dist
