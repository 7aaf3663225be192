#include "dist/group.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include "base/private_folder.h"
#include "base/text.h"
#include "base/timing.h"
#include "dist/gloo_log.h"
#include "dist/meeting.h"

namespace renorm::dist {
namespace {

constexpr std::chrono::milliseconds kSignOfLife{1'000};
constexpr int kMaxExchanges = 1 << 20;  // more than are ever under way at once

// c10d takes its connections in turn by the tag, so each of two processes sends on one of its own.
int tag_of(int exchange, int sender) { return 2 * exchange + sender; }

// Attempts to connect that fail are ordinary in a meeting, and c10d would log each. What matters is thrown
// too.
void quiet_c10d() {
  setenv("TORCH_CPP_LOG_LEVEL", "FATAL", /*overwrite=*/0);
  c10::initLogging();
#ifdef C10_USE_GLOG
  if (std::getenv("GLOG_minloglevel") == nullptr) FLAGS_minloglevel = google::GLOG_FATAL;
#endif
}

}  // namespace

bool is_thread_left_behind() { return thread_left_behind; }

Group::Group(const Launch& launch, const Rendezvous& rendezvous, const Options& options) : launch_(launch) {
  quiet_c10d();
  silence_gloo();  // here, because no other thread of this process writes to std::cerr yet
  if (!rendezvous.folder.empty()) {
    make_place(rendezvous);
    place_ = std::make_unique<MeetingPlace>(rendezvous.folder, launch.rank);
  }
  const auto meeting =
      std::make_shared<Meeting>(launch, rendezvous, place_ ? place_->store_path() : "", options.timeout);
  std::thread([meeting] { meeting->run(); }).detach();
  try {
    engine_ = meeting->result(options.stop);
  } catch (...) {
    if (!meeting->is_done()) thread_left_behind = true;
    throw;
  }
  if (place_) place_->met();
}

// On one machine all processes see what is wrong with the folder, and rank 0 reports it.
void Group::make_place(const Rendezvous& rendezvous) const try {
  make_private_folder(rendezvous.folder);
} catch (const OutputError&) {
  if (leads() || !rendezvous.is_local) throw;
  throw ReportedElsewhere(kExitCannotCreate);
}

Group::~Group() = default;

std::string Group::name_of(int rank) const {
  return fmt::format("rank {} on '{}'", rank, printable(engine_->members[rank].host));
}

int Group::local_size() const {
  const std::vector<ProcessName>& members = engine_->members;
  return static_cast<int>(std::count_if(members.begin(), members.end(), [&](const ProcessName& one) {
    return one.machine == members[rank()].machine;
  }));
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

void Group::check_members() {
  if (!engine_->gone_here().empty()) throw_lost();
}

void Group::leave() { engine_->gloo.reset(); }

Group::Wait Group::start_sum(torch::Tensor tensor) {
  TORCH_CHECK(tensor.is_contiguous(), "Group::start_sum: the tensor must be contiguous, got strides ",
              tensor.strides());
  if (!engine_->gloo) throw_lost();
  traffic_.bytes += static_cast<int64_t>(tensor.nbytes());
  ++traffic_.sums;
  std::function<void()> finish;
  try {
    finish =
        size() == 2 && tensor.numel() > 0 ? start_exchange(std::move(tensor)) : start_ring(std::move(tensor));
  } catch (const WorkerLost&) {
    throw;
  } catch (const std::exception&) {
    throw_lost();
  }
  return [this, finish] {
    const Stopwatch watch;
    try {
      finish();
    } catch (const std::exception&) {
      throw_lost();
    }
    traffic_.seconds += watch.seconds();
  };
}

Group::Wait Group::start_ring(torch::Tensor tensor) {
  std::vector<torch::Tensor> tensors = {std::move(tensor)};
  const c10::intrusive_ptr<c10d::Work> work = engine_->gloo->allreduce(tensors);
  return [work] { work->wait(); };
}

// Two processes send as many bytes as in a ring, but in one message each, and without the threads of an
// all-reduce, which take turns with the computation. a + b has the bits of b + a.
Group::Wait Group::start_exchange(torch::Tensor tensor) {
  expect_sum(tensor);
  const auto place = engine_->expected.find(tensor.data_ptr());
  const Exchange exchange = place->second;
  engine_->expected.erase(place);
  std::vector<torch::Tensor> own = {tensor.view(-1)};
  const c10::intrusive_ptr<c10d::Work> sent =
      engine_->gloo->send(own, 1 - rank(), tag_of(exchange.number, rank()));
  return [own = own[0], exchange, sent]() mutable {
    sent->wait();
    exchange.received->wait();
    const torch::NoGradGuard no_grad;
    own.add_(exchange.other);
  };
}

void Group::expect_sum(const torch::Tensor& tensor) {
  if (size() != 2 || !engine_->gloo || engine_->expected.count(tensor.data_ptr()) > 0) return;
  engine_->last_exchange = (engine_->last_exchange + 1) % kMaxExchanges;
  const int number = engine_->last_exchange;
  std::vector<torch::Tensor> other = {torch::empty({tensor.numel()}, tensor.options().requires_grad(false))};
  try {
    engine_->expected[tensor.data_ptr()] = {
        number, other[0], engine_->gloo->recv(other, 1 - rank(), tag_of(number, 1 - rank()))};
  } catch (const std::exception&) {
    throw_lost();
  }
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
