// Where the processes of a launch meet: a folder, or an address of the first of them.
#pragma once

#include <cstdint>
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

// `spec` is "tcp://HOST:PORT", a folder, or empty: then a folder inside `run_folder` if all processes are on
// one machine and the engine does not listen itself, otherwise the address of the launch. Throws UsageError.
Rendezvous rendezvous_of(const Launch& launch, const std::string& spec, const std::string& run_folder);

// The names of folders made for a rendezvous start with it.
constexpr const char* kRendezvousPrefix = ".rendezvous-";

// The mark of this process in the folder of a rendezvous. Creates the folder, for this user alone. What
// processes that were killed left there is deleted.
class MeetingPlace {
 public:
  // Throws OutputError: the folder belongs to another user, cannot be made, has no locks, or this rank is
  // there already.
  MeetingPlace(std::string folder, int rank);
  // The last one to leave deletes the folder, or rank 0 if the processes had met.
  ~MeetingPlace();
  void met() { has_met_ = true; }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  const std::string& folder() const { return folder_; }
  std::string store_path() const;

 private:
  std::string folder_;
  int rank_;
  bool has_met_ = false;
};

// Deletes the folder of a rendezvous if it is this user's and holds nothing else.
void remove_meeting_place(const std::string& folder);

// A process as others know it.
struct ProcessName {
  int64_t id = 0;       // 0: unknown
  std::string machine;  // on which the id is valid
  std::string host;     // the machine's name for people

  static ProcessName own();
  static ProcessName parse(const std::string& text);
  std::string text() const;
  // Whether it is on this machine and has ended or is stopped.
  bool is_gone() const;
};

}  // namespace renorm::dist
