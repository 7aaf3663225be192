#include "dist/meeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

#include "base/errors.h"
#include "base/text.h"
#include "dist/network.h"

namespace renorm::dist {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPoll{10};
constexpr milliseconds kLook{500};  // at the processes of this machine
constexpr milliseconds kLinger{200};
constexpr milliseconds kConnect{1'000};   // one attempt to reach rank 0
constexpr milliseconds kRollCall{1'000};  // how long a lost process may take to answer

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

std::string member_key(int rank) { return fmt::format("member/{}", rank); }
std::string alive_key(int rank) { return fmt::format("alive/{}", rank); }

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

std::shared_ptr<gloo::transport::Device> device_of(const Rendezvous& rendezvous) {
  using Gloo = c10d::ProcessGroupGloo;
  if (rendezvous.is_local) return Gloo::createDeviceForHostname("127.0.0.1");
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0') return Gloo::createDeviceForInterface(interface);
  return Gloo::createDeviceForHostname(address_towards(rendezvous.host));
}

// Each process writes down whom it misses on its own machine, and reads what the others wrote. Those that
// neither wrote nor are missed do not answer. A store that cannot be reached was rank 0's; it may also block,
// so this runs in a thread.
struct RollCall {
  RollCall(c10::intrusive_ptr<c10d::Store> store, int size, int own, const std::vector<int>& here)
      : store(std::move(store)), size(size), own(own), here(here), lost(here.begin(), here.end()) {}

  void run() {
    try {
      call();
    } catch (const std::exception&) {
      lost.insert(0);
    }
    done = true;
  }

  void call() {
    store->set(alive_key(own), bytes_of(fmt::format("{}", fmt::join(here, " "))));
    std::set<int> silent;
    for (int rank = 0; rank < size; ++rank) {
      if (rank != own) silent.insert(rank);
    }
    for (const auto end = Clock::now() + kRollCall; Clock::now() < end; std::this_thread::sleep_for(kPoll)) {
      for (auto rank = silent.begin(); rank != silent.end();) {
        const bool answered = store->check({alive_key(*rank)});
        if (answered) {
          std::istringstream missed(text_of(store->get(alive_key(*rank))));
          for (int other = 0; missed >> other;) lost.insert(other);
        }
        rank = answered ? silent.erase(rank) : std::next(rank);
      }
      if (std::includes(lost.begin(), lost.end(), silent.begin(), silent.end())) break;
    }
    lost.insert(silent.begin(), silent.end());
  }

  c10::intrusive_ptr<c10d::Store> store;
  int size;
  int own;
  std::vector<int> here;
  std::set<int> lost;  // the result, once `done`
  std::atomic<bool> done{false};
};

}  // namespace

std::atomic<bool> thread_left_behind{false};

// A store in a folder is never destroyed: its destructor would wait for the folder if rank 0 has removed it
// already. It holds no file open.
Engine::~Engine() {
  if (store_path.empty()) return;
#ifdef __SANITIZE_ADDRESS__
  __lsan_ignore_object(store.get());
#endif
  store.release();
}

std::vector<int> Engine::gone_here() const {
  std::vector<int> gone;
  for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
    if (members[rank].is_gone()) gone.push_back(rank);
  }
  return gone;
}

// A process that was killed is seen a moment after its connections. If nobody is seen to be gone, or there
// are other machines, all call the roll.
std::vector<int> Engine::lost_ranks(int own) const {
  std::vector<int> here = gone_here();
  for (const auto end = Clock::now() + kLook; here.empty() && Clock::now() < end; here = gone_here()) {
    std::this_thread::sleep_for(kPoll);
  }
  const bool is_one_machine = std::all_of(members.begin(), members.end(), [this](const ProcessName& one) {
    return one.machine == members[0].machine;
  });
  if (is_one_machine && !here.empty()) return here;
  // A store whose file is gone would wait for it.
  if (!store_path.empty() && !std::filesystem::exists(store_path)) return {0};
  const auto call = std::make_shared<RollCall>(store, static_cast<int>(members.size()), own, here);
  std::thread([call] { call->run(); }).detach();
  for (const auto end = Clock::now() + kRollCall + kLinger; !call->done && Clock::now() < end;) {
    std::this_thread::sleep_for(kPoll);
  }
  if (!call->done) {
    thread_left_behind = true;
    here.push_back(0);
    return here;
  }
  if (own == 0) std::this_thread::sleep_for(kLinger);  // others read from its store
  return {call->lost.begin(), call->lost.end()};
}

Meeting::Meeting(const Launch& launch, const Rendezvous& rendezvous, const std::string& store_path,
                 milliseconds timeout)
    : launch_(launch), rendezvous_(rendezvous), timeout_(timeout), end_(Clock::now() + timeout) {
  engine_->store_path = store_path;
}

void Meeting::run() {
  try {
    open_store();
    meet();
    connect();
  } catch (...) {
    error_ = std::current_exception();
  }
  done_ = true;
}

std::unique_ptr<Engine> Meeting::result(const std::atomic<bool>* stop) {
  for (auto look = Clock::now() + kLook; !done_; std::this_thread::sleep_for(kPoll)) {
    if (stop != nullptr && stop->load()) throw Interrupted("stopped before all processes had met");
    if (Clock::now() >= end_) throw_missing();
    if (Clock::now() < look) continue;
    check_present();
    look = Clock::now() + kLook;
  }
  if (error_) std::rethrow_exception(error_);
  return std::move(engine_);
}

// A process that came and has ended will never be met.
void Meeting::check_present() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [rank, process] : present_) {
    if (!process.is_gone()) continue;
    throw Interrupted(fmt::format("rank {} on '{}' ended or was stopped before all processes had met at {}",
                                  rank, printable(process.host), printable(rendezvous_.text())));
  }
}

void Meeting::throw_missing() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string place = printable(rendezvous_.text());
  if (missing_.empty()) {
    throw Interrupted(fmt::format("rank {} cannot reach {} at {} within {} s", launch_.rank,
                                  launch_.rank == 0 ? "the others" : "rank 0", place,
                                  timeout_.count() / 1000));
  }
  throw Interrupted(fmt::format("rank{} {} of {} did not come to {} within {} s; start all of them",
                                missing_.size() == 1 ? "" : "s", fmt::join(missing_, ", "), launch_.size,
                                place, timeout_.count() / 1000));
}

void Meeting::open_store() {
  if (!engine_->store_path.empty()) {
    engine_->store = c10::make_intrusive<c10d::FileStore>(engine_->store_path, launch_.size);
    engine_->store->setTimeout(timeout_);
    return;
  }
  for (milliseconds pause = kPoll; !engine_->store; pause = std::min(2 * pause, kConnect)) {
    try {
      engine_->store = open_address(launch_, rendezvous_, listens() ? timeout_ : kConnect);
    } catch (const std::exception& error) {
      if (listens()) {
        throw OutputError(fmt::format("cannot listen at {}: {}", rendezvous_.text(), first_line(error)));
      }
      std::this_thread::sleep_for(pause);
    }
  }
  engine_->store->setTimeout(timeout_);
}

void Meeting::meet() try {
  c10d::Store& store = *engine_->store;
  store.set(member_key(launch_.rank), bytes_of(ProcessName::own().text()));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int rank = 0; rank < launch_.size; ++rank) missing_.push_back(rank);
  }
  while (true) {
    // A store whose file is gone would wait for it.
    if (!engine_->store_path.empty() && !std::filesystem::exists(engine_->store_path)) {
      throw Interrupted("the other processes have left the rendezvous");
    }
    if (note_present(store)) break;
    std::this_thread::sleep_for(kPoll);
  }
  engine_->members.resize(static_cast<size_t>(launch_.size));
  for (const auto& [rank, process] : present_) engine_->members[rank] = process;
} catch (const Interrupted&) {
  throw;
} catch (const std::exception& error) {
  throw Interrupted(fmt::format("the rendezvous at {} ended before all processes had met: {}",
                                printable(rendezvous_.text()), first_line(error)));
}

// Whether all are there.
bool Meeting::note_present(c10d::Store& store) {
  std::vector<int> missing;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    missing = missing_;
  }
  std::vector<std::pair<int, ProcessName>> present;
  for (const int rank : missing) {
    if (!store.check({member_key(rank)})) continue;
    present.emplace_back(rank, ProcessName::parse(text_of(store.get(member_key(rank)))));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [rank, process] : present) {
    missing_.erase(std::find(missing_.begin(), missing_.end(), rank));
    present_.emplace_back(rank, process);
  }
  return missing_.empty();
}

void Meeting::connect() {
  const auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
  // A connection per entry, here of one device. Two processes have one in each direction: while a thread
  // sends, it holds the lock of the connection, and Gloo's thread polls for that lock if something arrives on
  // it.
  options->devices.assign(launch_.size == 2 ? 2 : 1, device_of(rendezvous_));
  try {
    engine_->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", engine_->store), launch_.rank, launch_.size, options);
  } catch (const std::exception& error) {
    throw Interrupted(
        fmt::format("rank {} cannot connect to the others: {}", launch_.rank, first_line(error)));
  }
}

}  // namespace renorm::dist
