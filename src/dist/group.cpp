#include "dist/group.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <sstream>
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
constexpr milliseconds kLook{500};  // at the processes of this machine
constexpr milliseconds kLinger{200};
constexpr milliseconds kConnect{1'000};   // one attempt to reach rank 0
constexpr milliseconds kRollCall{1'000};  // how long a lost process may take to answer
constexpr milliseconds kSignOfLife{1'000};

// Attempts to connect that fail are ordinary in a meeting, and c10d would log each. What matters is thrown
// too.
void quiet_c10d() {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
#ifdef C10_USE_GLOG
  if (std::getenv("GLOG_minloglevel") == nullptr) FLAGS_minloglevel = google::GLOG_FATAL;
#endif
}

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

class Deadline {
 public:
  explicit Deadline(milliseconds timeout) : end_(Clock::now() + timeout) {}
  bool passed() const { return Clock::now() >= end_; }

 private:
  Clock::time_point end_;
};

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

  bool is_on_one_machine() const {
    return std::all_of(members.begin(), members.end(),
                       [this](const ProcessName& one) { return one.machine == members[0].machine; });
  }

  // The ranks that have ended or are stopped, as far as this machine can see. A process that was killed is
  // seen a moment after its connections.
  std::vector<int> gone_here() const {
    std::vector<int> gone;
    for (const Deadline deadline(kLook); gone.empty() && !deadline.passed();
         std::this_thread::sleep_for(kPoll)) {
      for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
        if (members[rank].is_gone()) gone.push_back(rank);
      }
    }
    return gone;
  }

  // Each process writes down whom it misses on its own machine, and reads what the others wrote. Those that
  // neither wrote nor are missed do not answer. A store that cannot be reached was rank 0's.
  std::vector<int> lost_ranks(int own) const {
    const std::vector<int> here = gone_here();
    if (is_on_one_machine()) return here;
    std::set<int> lost(here.begin(), here.end());
    try {
      store->set(alive_key(own), bytes_of(fmt::format("{}", fmt::join(here, " "))));
      std::set<int> silent;
      for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
        if (rank != own) silent.insert(rank);
      }
      for (const Deadline deadline(kRollCall); !deadline.passed(); std::this_thread::sleep_for(kPoll)) {
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
      if (own == 0) std::this_thread::sleep_for(kLinger);  // others read from its store
    } catch (const std::exception&) {
      lost.insert(0);
    }
    return {lost.begin(), lost.end()};
  }

  bool is_in_folder = false;
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  std::vector<ProcessName> members;
};

// The steps of a meeting. They run in a thread, because stores wait in ways that end neither at a timeout nor
// at a signal. A thread that is left behind ends with the process.
class Group::Meeting {
 public:
  Meeting(const Launch& launch, const Rendezvous& rendezvous, std::string store_path, milliseconds timeout)
      : launch_(launch),
        rendezvous_(rendezvous),
        store_path_(std::move(store_path)),
        timeout_(timeout),
        deadline_(timeout) {}

  // To be called by the thread.
  void run() {
    try {
      open_store();
      meet();
      connect();
    } catch (...) {
      error_ = std::current_exception();
    }
    done_ = true;
  }

  // Throws what run() threw, or Interrupted if it takes too long or `stop` becomes true.
  std::unique_ptr<Engine> result(const std::atomic<bool>* stop) {
    while (!done_) {
      if (stop != nullptr && stop->load()) throw Interrupted("stopped before all processes had met");
      if (deadline_.passed()) throw_missing();
      std::this_thread::sleep_for(kPoll);
    }
    if (error_) std::rethrow_exception(error_);
    return std::move(engine_);
  }

 private:
  bool listens() const { return launch_.rank == 0 && !launch_.engine_listens; }

  [[noreturn]] void throw_missing() const {
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

  void open_store() {
    if (!store_path_.empty()) {
      engine_->is_in_folder = true;
      engine_->store = c10::make_intrusive<c10d::FileStore>(store_path_, launch_.size);
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

  void meet() try {
    c10d::Store& store = *engine_->store;
    store.set(member_key(launch_.rank), bytes_of(ProcessName::own().text()));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (int rank = 0; rank < launch_.size; ++rank) missing_.push_back(rank);
    }
    while (true) {
      // A store whose file is gone would wait for it.
      if (!store_path_.empty() && !std::filesystem::exists(store_path_)) {
        throw Interrupted("the other processes have left the rendezvous");
      }
      if (note_present(store)) break;
      std::this_thread::sleep_for(kPoll);
    }
    for (int rank = 0; rank < launch_.size; ++rank) {
      engine_->members.push_back(ProcessName::parse(text_of(store.get(member_key(rank)))));
    }
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    throw Interrupted(fmt::format("the rendezvous at {} ended before all processes had met: {}",
                                  printable(rendezvous_.text()), first_line(error)));
  }

  // Whether all are there.
  bool note_present(c10d::Store& store) {
    std::vector<int> missing;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      missing = missing_;
    }
    missing.erase(std::remove_if(missing.begin(), missing.end(),
                                 [&](int rank) { return store.check({member_key(rank)}); }),
                  missing.end());
    const std::lock_guard<std::mutex> lock(mutex_);
    missing_ = missing;
    return missing_.empty();
  }

  void connect() {
    const auto options = c10d::ProcessGroupGloo::Options::create(timeout_);
    options->devices.push_back(device_of(rendezvous_));
    try {
      engine_->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
          c10::make_intrusive<c10d::PrefixStore>("gloo", engine_->store), launch_.rank, launch_.size,
          options);
    } catch (const std::exception& error) {
      throw Interrupted(
          fmt::format("rank {} cannot connect to the others: {}", launch_.rank, first_line(error)));
    }
  }

  Launch launch_;
  Rendezvous rendezvous_;
  std::string store_path_;  // empty: an address
  milliseconds timeout_;
  Deadline deadline_;
  std::unique_ptr<Engine> engine_ = std::make_unique<Engine>();
  mutable std::mutex mutex_;
  std::vector<int> missing_;  // ranks that have not come yet
  std::exception_ptr error_;
  std::atomic<bool> done_{false};
};

Group::Group(const Launch& launch, const Rendezvous& rendezvous, const Options& options) : launch_(launch) {
  quiet_c10d();
  if (!rendezvous.folder.empty()) place_ = std::make_unique<MeetingPlace>(rendezvous.folder, launch.rank);
  const auto meeting =
      std::make_shared<Meeting>(launch, rendezvous, place_ ? place_->store_path() : "", options.timeout);
  std::thread([meeting] { meeting->run(); }).detach();
  engine_ = meeting->result(options.stop);
  if (place_) place_->met();
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
  texts.reserve(static_cast<size_t>(size()));
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
