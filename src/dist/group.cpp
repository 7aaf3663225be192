#include "dist/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "base/text.h"
#include "base/timing.h"
#include "dist/network.h"

namespace renorm::dist {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPoll{10};
constexpr milliseconds kConnect{1'000};   // one attempt to reach rank 0
constexpr milliseconds kRollCall{1'500};  // how long a lost process may take to answer
constexpr milliseconds kSignOfLife{1'000};

// A process of the launch as the others see it.
struct Member {
  std::string host;
  int64_t process = 0;
};

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string text_of(const Member& member) { return fmt::format("{} {}", member.process, member.host); }

Member member_of(const std::string& text) {
  const size_t space = text.find(' ');
  return {text.substr(space + 1), std::strtoll(text.c_str(), nullptr, 10)};
}

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string member_key(int rank) { return fmt::format("member/{}", rank); }
std::string alive_key(int rank) { return fmt::format("alive/{}", rank); }

// Whether a process of this machine has ended or is stopped. The state is the first letter after the name,
// which is in brackets.
bool is_gone(int64_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  if (!std::getline(file, line)) return true;
  const size_t bracket = line.rfind(')');
  if (bracket == std::string::npos || bracket + 2 >= line.size()) return false;
  return std::string("ZXT").find(line[bracket + 2]) != std::string::npos;
}

// The first sentence of an engine's message, which may go on with a list of calls.
std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return printable(text.substr(0, text.find('\n')));
}

c10::intrusive_ptr<c10d::Store> open_address(const Launch& launch, const Rendezvous& rendezvous,
                                             milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(rendezvous.port);
  options.isServer = launch.rank == 0 && !launch.engine_listens;
  options.numWorkers = static_cast<size_t>(launch.size);
  options.waitWorkers = false;
  options.timeout = timeout;
#if TORCH_VERSION_MAJOR >= 2
  options.useLibUV = false;  // Debian's LibTorch has no libuv
#endif
  c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::TCPStore>(rendezvous.host, options);
  return c10::make_intrusive<c10d::PrefixStore>("renorm-" + launch.job, store);
}

class Deadline {
 public:
  Deadline(milliseconds timeout, const std::atomic<bool>* stop) : end_(Clock::now() + timeout), stop_(stop) {}

  bool passed() const { return Clock::now() >= end_; }
  // Throws Interrupted once the program is to stop.
  void check_stop() const {
    if (stop_ != nullptr && stop_->load()) throw Interrupted("stopped before all processes had met");
  }

 private:
  Clock::time_point end_;
  const std::atomic<bool>* stop_;
};

c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch, const Rendezvous& rendezvous,
                                           const MeetingPlace* place, const Group::Options& options) {
  if (place != nullptr) return c10::make_intrusive<c10d::FileStore>(place->store_path(), launch.size);
  const Deadline deadline(options.timeout, options.stop);
  const bool listens = launch.rank == 0 && !launch.engine_listens;
  while (true) {
    try {
      return open_address(launch, rendezvous, listens ? options.timeout : kConnect);
    } catch (const std::exception& error) {
      if (listens) {
        throw OutputError(fmt::format("cannot listen at {}: {}", rendezvous.text(), first_line(error)));
      }
      deadline.check_stop();
      if (!deadline.passed()) continue;
      throw Interrupted(fmt::format("rank {} cannot reach rank 0 at {} within {} s: {}", launch.rank,
                                    rendezvous.text(), options.timeout.count() / 1000, first_line(error)));
    }
  }
}

std::vector<Member> meet(const Launch& launch, const Rendezvous& rendezvous, c10d::Store& store,
                         const Group::Options& options) {
  store.set(member_key(launch.rank), bytes_of(text_of(Member{host_name(), getpid()})));
  std::vector<int> missing;
  for (int rank = 0; rank < launch.size; ++rank) missing.push_back(rank);
  const Deadline deadline(options.timeout, options.stop);
  while (true) {
    missing.erase(std::remove_if(missing.begin(), missing.end(),
                                 [&](int rank) { return store.check({member_key(rank)}); }),
                  missing.end());
    if (missing.empty()) break;
    deadline.check_stop();
    if (deadline.passed()) {
      throw Interrupted(fmt::format("rank{} {} of {} did not come to {} within {} s; start all of them",
                                    missing.size() == 1 ? "" : "s", fmt::join(missing, ", "), launch.size,
                                    printable(rendezvous.text()), options.timeout.count() / 1000));
    }
    std::this_thread::sleep_for(kPoll);
  }
  std::vector<Member> members;
  for (int rank = 0; rank < launch.size; ++rank)
    members.push_back(member_of(text_of(store.get(member_key(rank)))));
  return members;
}

std::shared_ptr<gloo::transport::Device> device_of(const Rendezvous& rendezvous) {
  using Gloo = c10d::ProcessGroupGloo;
  if (rendezvous.is_local) return Gloo::createDeviceForHostname("127.0.0.1");
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') return Gloo::createDeviceForInterface(interface);
  return Gloo::createDeviceForHostname(address_towards(rendezvous.host));
}

}  // namespace

struct Group::Engine {
  // A store in a folder is never destroyed: its destructor would wait for the folder if rank 0 has removed it
  // already. It holds no file open.
  ~Engine() {
    if (is_in_folder) store.release();
  }

  bool is_in_folder = false;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::vector<Member> members;

  // Of the other processes. Those of this machine are looked up, the others called by the store.
  std::vector<int> lost_ranks(int own) const {
    std::vector<int> lost;
    std::vector<int> called;
    for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
      if (rank == own) continue;
      if (members[rank].host != members[own].host) {
        called.push_back(rank);
      } else if (is_gone(members[rank].process)) {
        lost.push_back(rank);
      }
    }
    if (lost.empty()) lost = silent_ranks(std::move(called), own);
    return lost;
  }

  // Those that do not answer. A store that cannot be reached was rank 0's.
  std::vector<int> silent_ranks(std::vector<int> called, int own) const try {
    store->set(alive_key(own), bytes_of("alive"));
    const Deadline deadline(kRollCall, nullptr);
    while (!called.empty() && !deadline.passed()) {
      std::this_thread::sleep_for(kPoll);
      called.erase(std::remove_if(called.begin(), called.end(),
                                  [&](int rank) { return store->check({alive_key(rank)}); }),
                   called.end());
    }
    return called;
  } catch (const std::exception&) {
    return {0};
  }
};

Group::Group(const Launch& launch, const Rendezvous& rendezvous, const Options& options) : launch_(launch) {
  if (!rendezvous.folder.empty()) place_ = std::make_unique<MeetingPlace>(rendezvous.folder, launch.rank);
  auto engine = std::make_unique<Engine>();
  engine->is_in_folder = place_ != nullptr;
  engine->store = open_store(launch, rendezvous, place_.get(), options);
  engine->members = meet(launch, rendezvous, *engine->store, options);
  const auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  gloo->devices.push_back(device_of(rendezvous));
  try {
    engine->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", engine->store), launch.rank, launch.size, gloo);
  } catch (const std::exception& error) {
    throw Interrupted(
        fmt::format("rank {} cannot connect to the others: {}", launch.rank, first_line(error)));
  }
  engine_ = std::move(engine);
}

Group::~Group() = default;

std::string Group::name_of(int rank) const {
  return fmt::format("rank {} on '{}'", rank, printable(engine_->members[rank].host));
}

std::string Group::meeting_place() const { return place_ ? place_->folder() : ""; }

// Closes all connections first, so that processes that wait for this one notice too.
void Group::throw_lost() {
  lost_ = true;
  engine_->gloo.reset();
  std::vector<std::string> names;
  for (const int rank : engine_->lost_ranks(launch_.rank)) names.push_back(name_of(rank));
  if (names.empty()) throw WorkerLost("the connection to another process was lost");
  throw WorkerLost(fmt::format("{} ended or did not answer", fmt::join(names, ", ")));
}

Group::Wait Group::start_sum(torch::Tensor tensor) {
  if (!engine_->gloo) throw_lost();
  traffic_.bytes += static_cast<int64_t>(tensor.nbytes());
  ++traffic_.sums;
  c10::intrusive_ptr<c10d::Work> work;
  try {
    std::vector<torch::Tensor> tensors = {std::move(tensor)};
    work = engine_->gloo->allreduce(tensors);
  } catch (const std::exception&) {
    throw_lost();
  }
  return [this, work] {
    const Stopwatch watch;
    try {
      work->wait();
    } catch (const std::exception&) {
      throw_lost();
    }
    traffic_.seconds += watch.seconds();
  };
}

void Group::sum(torch::Tensor tensor) { start_sum(std::move(tensor))(); }

std::vector<std::string> Group::gather(const std::string& text) {
  const torch::Tensor sizes = torch::zeros({size()}, torch::kInt64);
  sizes[rank()] = static_cast<int64_t>(text.size());
  sum(sizes);
  const torch::Tensor ends = sizes.cumsum(0);
  const torch::Tensor bytes = torch::zeros({ends[size() - 1].item<int64_t>()}, torch::kUInt8);
  auto* data = reinterpret_cast<char*>(bytes.data_ptr<uint8_t>());
  const auto first = [&](int rank) { return ends[rank].item<int64_t>() - sizes[rank].item<int64_t>(); };
  std::copy(text.begin(), text.end(), data + first(rank()));
  if (bytes.numel() > 0) sum(bytes);
  std::vector<std::string> texts;
  for (int rank = 0; rank < size(); ++rank) {
    texts.emplace_back(data + first(rank), static_cast<size_t>(sizes[rank].item<int64_t>()));
  }
  return texts;
}

std::string Group::broadcast(const std::string& text) {
  const torch::Tensor size = torch::full({1}, leads() ? static_cast<int64_t>(text.size()) : 0, torch::kInt64);
  sum(size);
  const torch::Tensor bytes = torch::zeros({size.item<int64_t>()}, torch::kUInt8);
  auto* data = reinterpret_cast<char*>(bytes.data_ptr<uint8_t>());
  if (bytes.numel() == 0) return "";
  if (leads()) std::copy(text.begin(), text.end(), data);
  try {
    std::vector<torch::Tensor> tensors = {bytes};
    engine_->gloo->broadcast(tensors)->wait();
  } catch (const std::exception&) {
    throw_lost();
  }
  return {data, static_cast<size_t>(bytes.numel())};
}

void Group::share(const std::exception_ptr& error) {
  const Failure own = error ? failure_of(error) : Failure{};
  const std::vector<std::string> failures =
      gather(error ? fmt::format("{} {}", own.exit_code, own.message.substr(0, own.message.find('\n')))
                   : std::string());
  for (int rank = 0; rank < size(); ++rank) {
    if (failures[rank].empty()) continue;
    const int code = std::atoi(failures[rank].c_str());
    if (!leads()) throw ReportedElsewhere(code);
    std::string message = failures[rank].substr(failures[rank].find(' ') + 1);
    if (rank > 0) message = fmt::format("{}: {}", name_of(rank), message);
    throw_for_exit_code(code, message);
  }
}

void Group::agree(const std::exception_ptr& error) {
  const torch::Tensor failed = torch::full({1}, error ? 1 : 0, torch::kInt32);
  sum(failed);
  if (failed.item<int>() > 0) share(error);
}

// While a process works, a thread of it gives a sign of life every second. Processes that are done wait for
// it.
void Group::together(const std::function<void()>& work) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  const auto wait_for_work = [&] {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait_for(lock, kSignOfLife, [&] { return done; });
    return done;
  };
  std::exception_ptr lost;
  std::thread signs([&] {
    try {
      for (bool all_done = false; !all_done;) {
        const torch::Tensor working = torch::full({1}, wait_for_work() ? 0 : 1, torch::kInt32);
        sum(working);
        all_done = working.item<int>() == 0;
      }
    } catch (...) {
      lost = std::current_exception();
    }
  });
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex);
    done = true;
  }
  changed.notify_one();
  signs.join();
  if (lost) std::rethrow_exception(lost);
  agree(error);
}

}  // namespace renorm::dist
