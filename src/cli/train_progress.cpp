#include "cli/train_progress.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/text.h"
#include "train/clip_spec.h"

namespace renorm::cli {
namespace {

constexpr auto kBetweenUpdates = std::chrono::milliseconds(100);
constexpr double kRecentSeconds = 3.0;
constexpr double kMinWaitShown = 5.0;  // percent of the time spent waiting for data

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100.0 * fraction); }

// Every r and d is clipped by definition; also before the first record.
bool is_hold(const record::StepRecord& record) { return record.r_max == 1.0 && record.d_max == 0.0; }

std::string norm_text(const train::Config& config) {
  std::string text = fmt::format("{}, eps {}, momentum {}{}", name_of(config.norm), shortest(config.norm_eps),
                                 shortest(config.norm_momentum), config.norm_scale ? ", weight trained" : "");
  if (config.norm != train::NormKind::kRenorm) return text;
  const ClipSchedule clip = train::to_schedule(train::parse_clip(config.clip), config.steps);
  return text + ", " + clip.to_string();
}

std::string step_shape_text(const train::Config& config) {
  const std::string images = fmt::format("{} x {} = {} images, normalized", config.workers, config.minibatch,
                                         config.workers * config.minibatch);
  return config.sync_norm ? images + " together"
                          : fmt::format("{} in groups of {}", images, config.microbatch);
}

std::string sampler_text(const train::Config& config) {
  return fmt::format("{}{}{}, seed {}", config.sampler, config.split_pairs ? ", pairs split" : "",
                     config.deal ? ", dealt" : "", config.seed);
}

std::string data_text(const data::Dataset& dataset) {
  const data::Description& about = dataset.description;
  return fmt::format("{}: {} training and {} test images of {} classes, {}x{}x{}", printable(about.spec),
                     grouped(dataset.train->size()), grouped(dataset.test->size()),
                     grouped(static_cast<int64_t>(about.classes.size())), about.channels, about.height,
                     about.width);
}

std::string optimizer_text(const train::Config& config) {
  std::string text = fmt::format("{}, learning rate {} {}", name_of(config.optimizer), shortest(config.lr),
                                 name_of(config.lr_schedule));
  if (config.lr_schedule != train::LrSchedule::kConstant)
    text += fmt::format(" to {} of it", percent(config.lr_final));
  if (config.warmup > 0) text += fmt::format(", warm-up {} steps", config.warmup);
  if (config.momentum > 0.0) text += fmt::format(", momentum {}", shortest(config.momentum));
  if (config.weight_decay > 0.0) text += fmt::format(", weight decay {}", shortest(config.weight_decay));
  return text;
}

std::vector<std::pair<std::string, std::string>> start_block(train::Trainer& trainer,
                                                             const std::string& folder,
                                                             const std::string& engine) {
  const train::Config& config = trainer.config();
  const double epochs = static_cast<double>(config.steps * config.workers * config.minibatch) /
                        static_cast<double>(trainer.dataset().train->size());
  return {
      {"model",
       fmt::format("{}, {} parameters", printable(config.model), grouped(trainer.parameter_count()))},
      {"data", data_text(trainer.dataset())},
      {"norm", norm_text(config)},
      {"sampler", sampler_text(config)},
      {"step", step_shape_text(config)},
      {"length", fmt::format("{} steps, {:.3g} epochs", grouped(config.steps), epochs)},
      {"optimizer", optimizer_text(config)},
      {"average", config.ema_decay > 0.0 ? fmt::format("decay {}", shortest(config.ema_decay)) : "none"},
      {"processes",
       trainer.processes() == 1 ? "1" : fmt::format("{}, started by {}", trainer.processes(), engine)},
      {"threads", fmt::format("{}{}", at::get_num_threads(), trainer.processes() == 1 ? "" : " per process")},
      {"folder", printable(folder)},
  };
}

}  // namespace

TrainProgress::TrainProgress(std::string folder, bool quiet, std::string engine)
    : engine_(std::move(engine)), folder_(std::move(folder)), quiet_(quiet) {}

void TrainProgress::Recent::add(const train::StepResult& result) {
  const double duration = result.times.all();
  const double kept = std::exp(-duration / kRecentSeconds);
  const auto images_now = static_cast<double>(result.examples);
  seconds = kept * seconds + duration;
  images = kept * images + images_now;
  loss = kept * loss + result.loss * images_now;
  correct = kept * correct + static_cast<double>(result.correct);
}

bool TrainProgress::due() {
  const Clock::time_point now = Clock::now();
  if (last_shown_ != Clock::time_point::min() && now - last_shown_ < kBetweenUpdates) return false;
  last_shown_ = now;
  return true;
}

void TrainProgress::print(const std::string& line) {
  if (!quiet_) progress_.print(line);
}

void TrainProgress::data_progress(int64_t done, int64_t total) {
  if (quiet_ || total <= 0) return;
  if (progress_.on_terminal()) {
    const double fraction = static_cast<double>(done) / static_cast<double>(total);
    if (due()) progress_.show(fmt::format("making data: {} of {} images", percent(fraction), grouped(total)));
    return;
  }
  if (!data_announced_) print(fmt::format("making data: {} images", grouped(total)));
  data_announced_ = true;
}

void TrainProgress::started(train::Trainer& trainer) {
  steps_ = trainer.config().steps;
  first_step_ = trainer.steps_done();
  renorm_ = trainer.config().norm == train::NormKind::kRenorm;
  averages_ = trainer.average() != nullptr;
  watch_ = {};
  last_shown_ = Clock::time_point::min();  // the first step is shown, however short the run is
  for (const auto& [name, value] : start_block(trainer, folder_, engine_)) {
    const std::string label = fmt::format("{:<10}", name);
    print(fit_fields({{label, value, 0}}, 0, progress_.colour()));
  }
  if (first_step_ > 0) print(fmt::format("continuing after step {}", grouped(first_step_)));
}

void TrainProgress::note(const std::string& sentence) { progress_.print("note: " + sentence); }

std::string TrainProgress::step_text(int64_t step) const { return fmt::format("{}/{}", step, steps_); }

std::string TrainProgress::time_left(int64_t step) const {
  const auto done = static_cast<double>(step - first_step_);
  return duration_text(watch_.seconds() / done * static_cast<double>(steps_ - step)) + " left";
}

void TrainProgress::add_clips(const record::StepRecord& record, std::vector<ProgressField>* all) const {
  all->push_back({"r_max", fmt::format("{:.2f}", record.r_max), 6});
  all->push_back({"d_max", fmt::format("{:.2f}", record.d_max), 6});
  if (is_hold(record)) {
    all->push_back({"", "hold", 7});
    return;
  }
  // The fractions are those of the last record, which may be one of the hold.
  if (is_hold(last_record_)) return;
  all->push_back({"clipped r", percent(record.r_clipped_above + record.r_clipped_below), 7});
  all->push_back({"d", percent(record.d_clipped), 7});
}

std::vector<ProgressField> TrainProgress::fields(const record::StepRecord& record) const {
  std::vector<ProgressField> all = {
      {"step", step_text(record.step), 0},
      {"images/s", fmt::format("{:.0f}", record.images_per_second), 4},
      {"loss", fmt::format("{:.4f}", record.loss), 1},
      {"accuracy", fmt::format("{:.2f} %", record.accuracy), 2},
      {"lr", fmt::format("{:.3g}", record.learning_rate), 5},
  };
  if (renorm_) add_clips(record, &all);
  if (record.data_wait_percent.value_or(0.0) >= kMinWaitShown) {
    all.push_back({"waiting for data", fmt::format("{:.0f} %", *record.data_wait_percent), 5});
  }
  all.push_back({"", time_left(record.step), 3});
  return all;
}

void TrainProgress::stepped(const train::Trainer& trainer, const train::StepResult& result) {
  recent_.add(result);
  if (quiet_ || !progress_.on_terminal() || !due()) return;
  record::StepRecord record = last_record_;
  record.step = trainer.steps_done();
  record.images_per_second = recent_.images / recent_.seconds;
  record.loss = recent_.loss / recent_.images;
  record.accuracy = 100.0 * recent_.correct / recent_.images;
  record.learning_rate = result.learning_rate;
  record.r_max = result.r_max;
  record.d_max = result.d_max;
  progress_.show(fit_fields(fields(record), progress_.columns(), progress_.colour()));
}

void TrainProgress::logged(const record::StepRecord& record) {
  last_record_ = record;
  last_record_.layers.clear();
  if (progress_.on_terminal()) return;
  constexpr int kAll = 1000;
  print(fit_fields(fields(record), kAll, false));
}

void TrainProgress::evaluated(const record::EvaluationRecord& record) {
  std::vector<ProgressField> all = {{"step", step_text(record.step), 0}};
  const bool is_recall = record.recall_at_5.has_value();
  const auto add = [&](const std::string& name, const record::Score& score) {
    all.push_back({name, fmt::format("{:.2f} %", score.accuracy), 0});
    if (!is_recall) all.push_back({"loss", fmt::format("{:.4f}", score.loss), 0});
  };
  add(record.split + (is_recall ? " recall@1" : " accuracy"), record.averaged);
  if (is_recall) all.push_back({"recall@5", fmt::format("{:.2f} %", *record.recall_at_5), 0});
  if (averages_) add("raw weights", record.raw);
  constexpr int kAll = 1000;
  print(fit_fields(std::move(all), kAll, progress_.colour()));
}

void TrainProgress::saved(int64_t step, const std::string& path, double seconds) {
  constexpr int kAll = 1000;
  print(fit_fields({{"step", step_text(step), 0},
                    {"saved", printable(path), 0},
                    {"in", fmt::format("{:.2f} s", seconds), 0}},
                   kAll, progress_.colour()));
}

}  // namespace renorm::cli
