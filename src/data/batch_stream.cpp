#include "data/batch_stream.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace renorm::data {

// A thread that loads what is requested, in that order.
class BatchStream::Loader {
 public:
  explicit Loader(const Split& split) : split_(split), thread_([this] { work(); }) {}
  ~Loader() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  size_t waiting() const { return results_.size(); }

  void request(std::vector<Draw> draws) {
    Job job{std::move(draws), {}};
    results_.push_back(job.result.get_future());
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    wake_.notify_all();
  }

  DrawnBatch take() {
    std::future<DrawnBatch> first = std::move(results_.front());
    results_.pop_front();
    return first.get();
  }

 private:
  struct Job {
    std::vector<Draw> draws;
    std::promise<DrawnBatch> result;
  };

  void work() {
    for (;;) {
      Job job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
        if (ends_) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      try {
        Batch batch = split_.load(job.draws);
        job.result.set_value({std::move(job.draws), std::move(batch)});
      } catch (...) {
        job.result.set_exception(std::current_exception());
      }
    }
  }

  const Split& split_;
  std::deque<std::future<DrawnBatch>> results_;  // used by the requesting thread only
  std::mutex mutex_;                             // for the two below
  std::deque<Job> jobs_;
  bool ends_ = false;
  std::condition_variable wake_;
  std::thread thread_;
};

BatchStream::BatchStream(const Split& split, NextDraws next_draws)
    : split_(split), next_draws_(std::move(next_draws)) {
  try {
    if (split.is_slow()) loader_ = std::make_unique<Loader>(split);
  } catch (const std::system_error&) {  // no thread available: load on demand
  }
}

BatchStream::~BatchStream() = default;

void BatchStream::request_ahead() {
  while (!ended_ && loader_->waiting() < 1 + kAhead) {
    std::vector<Draw> draws = next_draws_();
    ended_ = draws.empty();
    if (!ended_) loader_->request(std::move(draws));
  }
}

std::optional<DrawnBatch> BatchStream::next() {
  if (loader_ == nullptr) {
    std::vector<Draw> draws = next_draws_();
    if (draws.empty()) return std::nullopt;
    Batch batch = split_.load(draws);
    return DrawnBatch{std::move(draws), std::move(batch)};
  }
  request_ahead();
  if (loader_->waiting() == 0) return std::nullopt;
  return loader_->take();
}

}  // namespace renorm::data
