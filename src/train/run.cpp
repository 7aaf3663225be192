#include "train/run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "base/timing.h"
#include "data/unseen_classes.h"
#include "train/bfloat16_check.h"
#include "train/build_model.h"
#include "train/resumed_config.h"
#include "train/run_files.h"
#include "train/run_folder.h"
#include "train/settings.h"
#include "train/shared_start.h"
#include "train/step_records.h"
#include "train/stored_run.h"
#include "train/tensor_file.h"
#include "train/threads.h"

namespace renorm::train {
namespace {

// Steps between two comparisons of the weights of all processes.
constexpr int64_t kAgreementEvery = 100;

// Throws unless the folder has what the request requires.
FolderContents checked_contents(const RunRequest& request, const RunPaths& paths) {
  const FolderContents contents = contents_of(paths);
  const std::string folder = printable(request.folder);
  const bool has_settings = contents == FolderContents::kUnstarted || contents == FolderContents::kRun;
  if (request.resume && !has_settings && !describes_run(request.given)) {
    throw MissingInputError(fmt::format(
        "there is no run to resume in '{}'; check --out, or start a run without --resume", folder));
  }
  if (contents == FolderContents::kOther) {
    throw UsageError(fmt::format(
        "--out '{}' holds other files and no run of renorm; choose an empty or new folder", folder));
  }
  if (contents == FolderContents::kRun && !request.resume) {
    throw UsageError(fmt::format(
        "--out '{}' holds a run already; continue it with --resume or choose another folder", folder));
  }
  return contents;
}

// A run in progress.
class Session {
 public:
  Session(const RunRequest& request, Observer& observer)
      : request_(request),
        observer_(observer),
        group_(request.group),
        leads_(group_ == nullptr || group_->leads()),
        files_(request.folder) {
    if (group_ != nullptr) check_same_request(request_, *group_);
    Start start;
    std::optional<Checkpoint> checkpoint;
    together([&] {
      if (leads_) start = prepare(&checkpoint);
    });
    if (group_ != nullptr) start = shared_start(start, *group_);
    open(start);
    restore(start, checkpoint);
    writing(
        [&] { files_.start(state_, trainer_->config(), group_ == nullptr ? "" : group_->meeting_place()); });
    records_.restart();
  }

  RunResult run() try {
    observer_.started(*trainer_);
    const int64_t steps = trainer_->config().steps;
    if (state_.unevaluated) {
      stop_if_requested();
      evaluate(*state_.unevaluated);
      save();
    }
    if (trainer_->steps_done() >= steps) {
      observer_.note(fmt::format("the run in '{}' is finished", printable(request_.folder)));
      // Checkpoints of older versions lack it.
      if (!state_.last_evaluation) state_.last_evaluation = trainer_->evaluate_test();
    } else {
      stop_if_requested();
    }
    while (trainer_->steps_done() < steps) step();
    return result();
  } catch (const dist::WorkerLost& lost) {
    throw Interrupted(
        fmt::format("{} during step {}; {}; continue with --resume", lost.what(), trainer_->steps_done() + 1,
                    saved_step_ == 0 ? "there is no checkpoint yet"
                                     : fmt::format("the last checkpoint is of step {}", saved_step_)));
  }

 private:
  // Runs what only some processes do, or what takes them different times.
  void together(const std::function<void()>& work) {
    if (group_ == nullptr) return work();
    group_->together(work);
  }

  // Rank 0 only: takes the folder and reads what it holds.
  Start prepare(std::optional<Checkpoint>* checkpoint) {
    const FolderContents contents = checked_contents(request_, files_.paths());
    check_inside(files_.paths());
    Start start;
    start.continues = contents == FolderContents::kRun;
    // The settings given to continue a run are checked together with the rest of its settings.
    if (!start.continues) start.config = new_config(contents);
    files_.take(contents);
    if (!start.continues) {
      // A run that never started keeps its settings until this one starts.
      if (contents != FolderContents::kUnstarted || !request_.resume) files_.write_config(start.config);
      return start;
    }
    StoredRun stored = read_run(files_.paths());
    for (const std::string& note : stored.notes) observer_.note(note);
    if (!stored.id.empty()) files_.id = stored.id;
    *checkpoint = std::move(stored.checkpoint);
    start.config = stored.config;
    if (*checkpoint) start.state = (*checkpoint)->state;
    return start;
  }

  // The settings of a run that is about to begin.
  Config new_config(FolderContents contents) {
    const bool is_stored = request_.resume && contents == FolderContents::kUnstarted;
    const StoredConfig file = is_stored ? read_config(files_.paths()) : StoredConfig();
    if (!file.id.empty()) files_.id = file.id;
    const Config stored = is_stored ? file.config : request_.config;
    const Config config = is_stored ? corrected_config(stored, request_.config, request_.given) : stored;
    check(config);
    check_bfloat16(
        config, is_stored && stored.dtype == Dtype::kBf16 ? DtypeFrom::kUnstartedRun : DtypeFrom::kSettings);
    const std::vector<std::string> other = differing(stored, config);
    if (!other.empty()) {
      observer_.note(fmt::format("nothing was trained in '{}' yet, so other settings are taken: --{}",
                                 printable(request_.folder), fmt::join(other, ", --")));
    }
    return config;
  }

  bool is_stop_requested() const { return request_.stop != nullptr && request_.stop->load(); }

  // Before the first step of this process there is nothing to save. Called by all processes.
  void stop_if_requested() {
    together([this] { stop_alone_if_requested(); });
  }

  // In work of this process.
  void stop_alone_if_requested() const {
    if (group_ != nullptr && group_->is_lost()) throw Interrupted("another process was lost");
    if (is_stop_requested()) throw Interrupted("stopped before the next step; continue with --resume");
  }

  void check_bfloat16(const Config& config, DtypeFrom from) const {
    if (config.dtype != Dtype::kBf16) return;
    use_threads(config.threads > 0 ? config.threads : at::get_num_threads());
    const models::BFloat16Cost cost = models::measure_bfloat16(memory_format_of(config));
    const std::string note = judge_bfloat16(cost, from, request_.force_bf16);
    if (!note.empty()) observer_.note(note);
  }

  // Opens data and makes the model. Rank 0 comes first, so that the others find a cache that it has filled.
  void open(const Start& start) {
    std::optional<data::Dataset> dataset;
    together([&] {
      if (leads_) dataset = open_checked(start);
    });
    together([&] {
      if (!leads_) dataset = open_checked(start);
    });
    if (group_ != nullptr) check_same_data(*dataset, *group_);
    together([&] { build(start, std::move(*dataset)); });
  }

  data::Dataset open_checked(const Start& start) {
    Config config = start.config;
    if (start.continues) {
      config = with_free_settings(config, request_.config, request_.given);
      check_bfloat16(config, DtypeFrom::kBegunRun);
    }
    stop_alone_if_requested();
    data::OpenOptions options;
    options.threads = request_.threads > 0 ? request_.threads : at::get_num_threads();
    options.progress = [this](int64_t done, int64_t total) {
      observer_.data_progress(done, total);
      stop_alone_if_requested();
    };
    data::Dataset dataset = open_data(config, options);
    stop_alone_if_requested();
    check_fingerprint(dataset.description, start.state.step > 0 ? start.state.data.fingerprint : "");
    warn_of_one_class(dataset.description);
    return dataset;
  }

  void build(const Start& start, data::Dataset dataset) {
    const int64_t images = dataset.train->size();
    const Config whole = start.continues ? continued_config(start.config, request_.config, request_.given,
                                                            images, request_.folder)
                                         : resolved(start.config, images);
    const bool chosen =
        std::find(request_.given.begin(), request_.given.end(), "threads") != request_.given.end();
    use_threads(chosen || request_.threads == 0 ? whole.threads : request_.threads);
    trainer_ = std::make_unique<Trainer>(whole, std::move(dataset), group_);
  }

  // A `then` that is not empty must be that of the data.
  void check_fingerprint(const data::Description& now, const std::string& then) const {
    if (then.empty() || now.fingerprint == then) return;
    throw DataError(
        fmt::format("the data '{}' is not what the run in '{}' started with: images were added, removed "
                    "or renamed; restore it, or start a new run in another --out",
                    printable(now.spec), printable(request_.folder)));
  }

  void warn_of_one_class(const data::Description& data) {
    const std::string note = data::one_class_note(data.spec, data.classes);
    if (!note.empty()) observer_.note(note);
  }

  // Rank 0 has the checkpoint or the initial weights, and sends them to the others.
  void restore(const Start& start, const std::optional<Checkpoint>& checkpoint) {
    state_ = start.state;
    saved_step_ = state_.step;
    const bool starts_from_file = state_.step == 0 && !trainer_->config().init.empty();
    if (state_.step == 0 && !starts_from_file) return;
    together([&] {
      if (!leads_) return;
      if (starts_from_file) return start_from(trainer_->config().init);
      trainer_->restore(checkpoint->tensors, state_.step, files_.checkpoint_path(state_.step));
    });
    if (group_ == nullptr) return;
    std::map<std::string, std::string> files = trainer_->encode();
    for (auto& [name, bytes] : files) bytes = group_->broadcast(bytes);
    if (!leads_) trainer_->restore(files, state_.step, files_.checkpoint_path(state_.step));
  }

  void start_from(const std::string& file) {
    const std::string name = printable(file);
    const std::vector<std::string> left = trainer_->start_from(read_tensors(read_file(file), name), name);
    if (left.empty()) return;
    observer_.note(fmt::format("weights are from '{}', except {}, which do not fit and start at random", name,
                               fmt::join(left, ", ")));
  }

  // Calls what reads images. If they have vanished or are bad, the steps done are saved before the run ends.
  template <typename Call>
  auto reading(const Call& call) {
    const auto keep_steps = [this] {
      if (trainer_->steps_done() > state_.step) save();
    };
    try {
      return call();
    } catch (const dist::ReportedElsewhere& error) {
      const int code = error.exit_code;
      if (code == kExitMissingInput || code == kExitData || code == kExitIo) keep_steps();
      throw;
    } catch (const MissingInputError&) {
      keep_steps();
      throw;
    } catch (const DataError&) {
      keep_steps();
      throw;
    } catch (const IoError&) {
      keep_steps();
      throw;
    }
  }

  void step() {
    const Stopwatch watch;
    const StepResult result = reading([this] { return trainer_->step(is_stop_requested()); });
    records_.add(result);
    state_.skipped_images += result.skipped_images;
    const int64_t done = trainer_->steps_done();
    const Config& config = trainer_->config();
    const bool last = done == config.steps;
    observer_.stepped(*trainer_, result);
    if (last || done % config.log_every == 0) log(result);
    const bool evaluates = last || done % config.eval_every == 0;
    if (evaluates) evaluate(records_.of(*trainer_, result, state_.skipped_images));
    const bool stops = group_ == nullptr ? is_stop_requested() : result.stop;
    state_.seconds += watch.seconds();
    const bool saves = evaluates || stops || done % config.checkpoint_every == 0;
    if (saves || done % kAgreementEvery == 0) trainer_->check_agreement();
    if (saves) save();
    if (!stops || last) return;
    if (!leads_) throw dist::ReportedElsewhere(kExitInterrupted);
    throw Interrupted(fmt::format("stopped after step {} of {}; continue with --resume", done, config.steps));
  }

  // Calls what writes to the files. Rank 0 has them.
  void writing(const std::function<void()>& work) {
    together([&] {
      if (leads_) work();
    });
  }

  void log(const StepResult& result) {
    const record::StepRecord record = records_.of(*trainer_, result, state_.skipped_images);
    writing([&] { files_.append(record); });
    observer_.logged(record);
    records_.logged(record);
  }

  // `step` is the record of the last step done.
  void evaluate(record::StepRecord step) {
    const Stopwatch watch;
    step.layers.clear();
    state_.unevaluated = step;
    const record::EvaluationRecord record = reading([this] { return trainer_->evaluate_test(); });
    writing([&] {
      files_.append(record);
      files_.append_summary(record::summary_csv_row(record, step));
    });
    state_.unevaluated.reset();
    if (record.averaged.accuracy > state_.best_accuracy) {
      state_.best_accuracy = record.averaged.accuracy;
      state_.best_step = record.step;
    }
    state_.last_evaluation = record;
    observer_.evaluated(record);
    records_.exclude(watch.seconds());  // evaluation is not training
  }

  void save() {
    const Stopwatch watch;
    state_.step = trainer_->steps_done();
    state_.config = trainer_->config();
    state_.versions = request_.versions;
    state_.parameters = trainer_->parameter_count();
    state_.data = trainer_->dataset().description;
    writing([this] { files_.save(&state_, trainer_->encode()); });
    saved_step_ = state_.step;
    observer_.saved(state_.step, files_.checkpoint_path(state_.step), watch.seconds());
    records_.exclude(watch.seconds());
  }

  RunResult result() const {
    RunResult result;
    result.steps = trainer_->steps_done();
    result.last = *state_.last_evaluation;
    result.best_accuracy = state_.best_accuracy;
    result.best_step = state_.best_step;
    result.seconds = state_.seconds;
    return result;
  }

  const RunRequest& request_;
  Observer& observer_;
  dist::Group* group_;  // null: one process
  bool leads_;          // has the folder
  RunFiles files_;      // changed by rank 0 only
  std::unique_ptr<Trainer> trainer_;
  RunState state_;
  int64_t saved_step_ = 0;  // of the newest checkpoint
  StepRecords records_;
};

}  // namespace

RunResult run(const RunRequest& request, Observer& observer) try {
  return Session(request, observer).run();
} catch (const dist::WorkerLost& lost) {  // by the constructor
  throw Interrupted(fmt::format("{} before the first step; start again with --resume", lost.what()));
}

data::Dataset open_data(const Config& config, data::OpenOptions options) {
  const int threads = config.loader_threads > 0 ? config.loader_threads : config.threads;
  if (threads > 0) options.threads = threads;
  data::TransformOptions& transform = options.images.transform;
  transform.size = config.image_size > 0 ? config.image_size : models::model_kind(config.model).image_size;
  transform.min_area = config.crop_area;
  transform.flip = config.flip;
  transform.jitter = {config.jitter, config.jitter, config.jitter};
  options.images.seed = config.seed;
  options.images.val_fraction = config.val_fraction;
  options.images.on_bad_image = config.on_bad_image;
  data::Dataset dataset = data::open_dataset(config.data, options);
  if (config.objective == Objective::kClasses) return dataset;
  const auto classes = static_cast<int64_t>(dataset.description.classes.size());
  return data::with_unseen_classes(std::move(dataset), config.unseen > 0 ? config.unseen : classes / 2);
}

}  // namespace renorm::train
