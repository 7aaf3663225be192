#include "experiments/reproduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "base/timing.h"
#include "experiments/children.h"
#include "experiments/experiment_folder.h"
#include "experiments/gather.h"
#include "train/run_folder.h"

namespace renorm::experiments {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPause = std::chrono::milliseconds(100);
constexpr auto kBetweenViews = std::chrono::milliseconds(400);

// One arm with one seed: trained, then evaluated as the arm requires.
struct Job {
  const Arm* plan;
  const record::Arm* arm;  // its place in the results
  uint64_t seed;
  std::string folder;
  RunProgress progress;
  bool announced = false;
  std::vector<std::string> words;  // of the process that runs
  Stopwatch watch;

  std::string log() const { return folder + ".log"; }
  std::string name() const { return fmt::format("{}, seed {}", plan->name, seed); }

  // The next command to run; empty if nothing is left to do.
  std::vector<std::string> next() const {
    if (!progress.trained) {
      train::Config config = plan->config;
      config.seed = seed;
      std::vector<std::string> words = {"train", "--out", folder, "--quiet"};
      // Settings of a run that never started may be those of another experiment.
      if (train::contents_of(train::RunPaths(folder)) == train::FolderContents::kRun) {
        words.emplace_back("--resume");
      }
      const std::vector<std::string> flags = flags_of(config);
      words.insert(words.end(), flags.begin(), flags.end());
      return words;
    }
    const auto file = [this](const char* name) { return fmt::format("{}/{}", folder, name); };
    if (progress.needs_training_set) {
      return {"eval", folder, "--split", "train", "--json", file(kTrainingSetFile)};
    }
    if (progress.needs_batch_statistics) {
      return {"eval",
              folder,
              "--batch-statistics",
              "--sampler",
              arm->batch_statistics_sampler,
              "--json",
              file(kBatchStatisticsFile)};
    }
    if (progress.needs_longer) {
      return {"eval", folder, "--extra-rows", std::to_string(*arm->extra_rows), "--json", file(kLongerFile)};
    }
    return {};
  }
};

class Session {
 public:
  Session(const ReproduceRequest& request, ReproduceObserver& observer)
      : request_(request), observer_(observer), results_(blank_results(request.experiment)) {
    if (holds_results(request.folder)) {
      const record::Results stored = read_results(request.folder);
      if (has_runs(request.folder, stored)) {
        merge_stored(stored, request.folder, &results_);
      } else {
        check_empty(stored, request.folder);
      }
    }
    check_no_links(request.folder, results_);
    make_writable_folder(request.folder);
    lock_ = std::make_unique<train::FolderLock>(fmt::format("{}/{}", request.folder, kLockFile));
    results_.command = command_of(results_);
    save();
    add_jobs();
  }

  Reproduced run() {
    prepare_data();
    watch_ = {};
    steps_before_ = steps_done();
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (!jobs_[i].progress.finished()) waiting_.push_back(i);
    }
    const auto runs = static_cast<int64_t>(jobs_.size());
    observer_.begins(runs, runs - static_cast<int64_t>(waiting_.size()));
    while (!waiting_.empty() || !running_.empty()) {
      check_stop();
      lock_->check();
      while (!waiting_.empty() && running_.size() < static_cast<size_t>(request_.jobs)) start_next();
      std::this_thread::sleep_for(kPause);
      collect();
      show();
    }
    save();
    if (failure_) throw_for_exit_code(failure_->first, failure_->second);
    return {std::move(results_), std::move(lock_)};
  }

 private:
  // Seed by seed, so that every arm has a result early.
  void add_jobs() {
    for (const uint64_t seed : request_.experiment.seeds) {
      for (const Arm& plan : request_.experiment.arms) {
        const record::Arm& arm = *std::find_if(results_.arms.begin(), results_.arms.end(),
                                               [&](const record::Arm& a) { return a.name == plan.name; });
        Job job = {&plan, &arm,  seed, fmt::format("{}/runs/{}/seed-{}", request_.folder, plan.name, seed),
                   {},    false, {},   {}};
        job.progress = progress_of(arm, job.folder);
        jobs_.push_back(std::move(job));
      }
    }
  }

  // Draws the contact sheet, and puts generated data into the cache before several processes need them.
  void prepare_data() {
    const std::string preview = fmt::format("{}/{}", request_.folder, kPreviewFile);
    prepare(
        {"data", results_.data, "--preview", preview, "--preview-bytes", std::to_string(kMaxPreviewBytes)});
    std::set<std::string> prepared = {results_.data};
    for (const Arm& arm : request_.experiment.arms) {
      if (prepared.insert(arm.config.data).second) prepare({"data", arm.config.data});
    }
  }

  void prepare(const std::vector<std::string>& words) {
    const std::string log = fmt::format("{}/{}", request_.folder, kDataLog);
    observer_.prepares(words[1]);
    Child child(words, log);
    int code = 0;
    while (!child.ended(&code)) {
      check_stop();
      lock_->check();
      std::this_thread::sleep_for(kPause);
    }
    lock_->check();
    const std::string problem = code == 0 ? "" : explained(code, log);
    if (code < 128) std::filesystem::remove(log);  // otherwise the sentence names it
    if (code != 0) throw_for_exit_code(code, problem);
  }

  void start_next() {
    Job& job = jobs_[waiting_.front()];
    make_writable_folder(std::filesystem::path(job.folder).parent_path());
    if (!job.announced) {
      job.announced = true;
      job.watch = {};
      observer_.run_started(job.plan->name, job.seed, job.progress.steps_done);
    }
    job.words = job.next();
    running_.emplace(waiting_.front(), Child(job.words, job.log()));
    waiting_.pop_front();
  }

  void collect() {
    for (auto entry = running_.begin(); entry != running_.end();) {
      int code = 0;
      if (!entry->second.ended(&code)) {
        ++entry;
        continue;
      }
      const size_t index = entry->first;
      entry = running_.erase(entry);
      finish_part(index, code);
    }
  }

  void finish_part(size_t index, int code) {
    lock_->check();  // the log and the figures may be those of another experiment
    Job& job = jobs_[index];
    if (code != 0) return fail(job, code);
    job.progress = progress_of(*job.arm, job.folder);
    if (job.progress.finished()) {
      observer_.run_finished(job.plan->name, job.seed, job.progress.accuracy, job.watch.seconds());
      save();
    } else if (job.next() == job.words) {
      throw IoError(fmt::format("{}: 'renorm {}' wrote no result; see '{}'", job.name(), job.words.front(),
                                printable(job.log())));
    } else {
      waiting_.push_front(index);
    }
  }

  // A failure concerns one run only, unless the command line or the disk is the cause.
  void fail(const Job& job, int code) {
    const std::string message = fmt::format("{}: {}", job.name(), explained(code, job.log()));
    const bool concerns_all =
        code == kExitUsage || code == kExitCannotCreate || code == kExitIo || code == kExitInterrupted;
    if (concerns_all) {
      stop_all();
      throw_for_exit_code(code, message);
    }
    observer_.run_failed(message);
    if (!failure_) failure_ = {code, message};
  }

  static std::string explained(int code, const std::string& log) {
    const std::string line = last_line(log);
    if (!line.empty() && code < 128) return line;
    return fmt::format("its process ended with {} {}; its output is in '{}'",
                       code < 128 ? "exit code" : "signal", code < 128 ? code : code - 128, printable(log));
  }

  void stop_all() {
    for (auto& entry : running_) entry.second.ask_to_stop();
    running_.clear();  // waits
  }

  void check_stop() {
    if (request_.stop == nullptr || !request_.stop->load()) return;
    observer_.stops();
    stop_all();
    save();
    throw Interrupted(fmt::format("stopped; the same command continues in '{}'", printable(request_.folder)));
  }

  void save() {
    lock_->check();
    gather(request_.folder, &results_);
    lock_->check();  // gathering takes a while
    write_atomically(fmt::format("{}/{}", request_.folder, kResultsFile), to_json(results_), Links::kReplace);
  }

  int64_t steps_done() const {
    int64_t steps = 0;
    for (const Job& job : jobs_) steps += job.progress.steps_done;
    return steps;
  }

  void show() {
    if (Clock::now() - shown_ < kBetweenViews) return;
    shown_ = Clock::now();
    for (const auto& entry : running_) {
      Job& job = jobs_[entry.first];
      job.progress = progress_of(*job.arm, job.folder);
    }
    const int64_t done = steps_done() - steps_before_;
    const double per_step = done > 0 ? watch_.seconds() / static_cast<double>(done) : -1.0;
    std::vector<ArmView> views;
    int64_t left = 0;
    for (const Arm& plan : request_.experiment.arms) {
      ArmView view = view_of(plan);
      left += view.steps - view.steps_done;
      const auto own = static_cast<double>(view.steps - view.steps_done);
      if (per_step > 0.0) view.seconds_left = own * per_step * static_cast<double>(request_.jobs);
      views.push_back(std::move(view));
    }
    observer_.changed(views, per_step > 0.0 ? static_cast<double>(left) * per_step : -1.0);
  }

  ArmView view_of(const Arm& plan) const {
    ArmView view;
    view.name = plan.name;
    double accuracy = 0.0, evaluated = 0.0;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const Job& job = jobs_[i];
      if (job.plan != &plan) continue;
      view.running = view.running || running_.count(i) > 0;
      view.runs += 1;
      view.runs_done += job.progress.finished() ? 1 : 0;
      view.steps += plan.config.steps;
      view.steps_done += job.progress.steps_done;
      if (job.progress.accuracy < 0.0) continue;
      accuracy += job.progress.accuracy;
      evaluated += 1.0;
    }
    if (evaluated > 0.0) view.accuracy = accuracy / evaluated;
    return view;
  }

  const ReproduceRequest& request_;
  ReproduceObserver& observer_;
  record::Results results_;
  std::unique_ptr<train::FolderLock> lock_;
  std::vector<Job> jobs_;
  std::deque<size_t> waiting_;
  std::map<size_t, Child> running_;
  Stopwatch watch_;
  Clock::time_point shown_;
  int64_t steps_before_ = 0;
  std::optional<std::pair<int, std::string>> failure_;  // the first: exit code and sentence
};

}  // namespace

Reproduced reproduce(const ReproduceRequest& request, ReproduceObserver& observer) {
  return Session(request, observer).run();
}

}  // namespace renorm::experiments
