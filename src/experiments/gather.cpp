#include "experiments/gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/foreign_folder.h"
#include "base/text.h"
#include "experiments/claims.h"
#include "experiments/experiment.h"
#include "record/eval_result.h"
#include "record/metrics.h"
#include "train/checkpoint.h"
#include "train/config_file.h"
#include "train/run_folder.h"

namespace renorm::experiments {
namespace {

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// The folder of a run. It may come from a stranger: only files inside of `root` are opened.
class RunFolder {
 public:
  RunFolder(std::string root, const std::string& name) : root_(std::move(root)), inside_(name) {}

  const train::RunPaths& inside() const { return inside_; }  // relative to the root
  std::string path(const std::string& file) const {
    return (std::filesystem::path(root_) / std::filesystem::path(file).lexically_normal()).string();
  }
  std::string read(const std::string& file, int64_t limit = int64_t{1} << 40) const {
    return read_file_inside(root_, file, limit);
  }

 private:
  std::string root_;
  train::RunPaths inside_;
};

record::Metrics metrics_of(const RunFolder& folder) {
  const std::string& file = folder.inside().metrics;
  if (!exists(folder.path(file))) return {};
  return record::parse_metrics(folder.read(file), folder.path(file));
}

std::optional<record::EvalResult> eval_of(const RunFolder& folder, const char* name) {
  const std::string file = fmt::format("{}/{}", folder.inside().folder, name);
  if (!exists(folder.path(file))) return std::nullopt;
  return record::parse_eval_result(folder.read(file), folder.path(file));
}

// The state of the newest checkpoint, if there is one. A running process may replace it at any moment. Of all
// links only `last` is followed, to a checkpoint beside it.
std::optional<train::RunState> state_of(const RunFolder& folder) try {
  const std::filesystem::path checkpoints = folder.inside().checkpoints;
  std::error_code error;
  const std::filesystem::path target =
      std::filesystem::read_symlink(folder.path((checkpoints / "last").string()), error);
  const std::string file = (checkpoints / (error ? "last" : target) / "state.json").string();
  return train::parse_run_state(folder.read(file), printable(folder.path(file)));
} catch (const MissingInputError&) {
  return std::nullopt;
}

// A run writes its last evaluation before its last checkpoint; only with both is it trained.
bool is_trained(const record::Metrics& metrics, const std::optional<train::RunState>& state, int64_t steps) {
  return !metrics.evaluations.empty() && metrics.evaluations.back().step == steps && state &&
         state->step == steps;
}

int64_t steps_of(const record::Metrics& metrics) {
  int64_t steps = metrics.steps.empty() ? 0 : metrics.steps.back().step;
  if (!metrics.evaluations.empty()) steps = std::max(steps, metrics.evaluations.back().step);
  return steps;
}

RunProgress progress_from(const record::Arm& arm, const RunFolder& folder, const record::Metrics& metrics,
                          const std::optional<train::RunState>& state) {
  RunProgress progress;
  progress.steps_done = steps_of(metrics);
  if (!metrics.evaluations.empty()) progress.accuracy = metrics.evaluations.back().averaged.accuracy;
  progress.trained = is_trained(metrics, state, arm.steps);
  // An evaluation of an earlier checkpoint is ignored.
  const auto lacks = [&](const char* name) {
    const std::optional<record::EvalResult> eval = eval_of(folder, name);
    return !eval || eval->step != arm.steps;
  };
  progress.needs_training_set = arm.train_accuracy.has_value() && lacks(kTrainingSetFile);
  progress.needs_batch_statistics = arm.batch_statistics_accuracy.has_value() && lacks(kBatchStatisticsFile);
  progress.needs_longer = arm.extra_rows.has_value() && lacks(kLongerFile);
  return progress;
}

// Sums over the seeds that have a record at a step.
struct TrainingSum {
  record::TrainingPoint sum;
  double count = 0.0;
};

void add(const record::StepRecord& record, TrainingSum* to) {
  to->count += 1.0;
  to->sum.step = record.step;
  to->sum.loss += record.loss;
  to->sum.accuracy += record.accuracy;
  to->sum.learning_rate = record.learning_rate;
  to->sum.r_max = record.r_max;
  to->sum.d_max = record.d_max;
  to->sum.r_clipped += record.r_clipped_above + record.r_clipped_below;
  to->sum.d_clipped += record.d_clipped;
}

record::TrainingPoint mean_of(const TrainingSum& sum) {
  record::TrainingPoint point = sum.sum;
  point.loss /= sum.count;
  point.accuracy /= sum.count;
  point.r_clipped /= sum.count;
  point.d_clipped /= sum.count;
  return point;
}

// Everything of an arm over its runs.
struct Gathered {
  std::map<int64_t, std::vector<double>> curve;
  std::vector<std::vector<record::EvaluationRecord>> evaluations;  // of each run
  std::map<int64_t, TrainingSum> training;
  std::optional<int64_t> test_images;
  std::vector<double> test;
  std::vector<double> recall_at_5;
  std::vector<double> training_set;
  std::vector<double> batch_statistics;
  std::vector<double> longer;
};

void gather_run(const RunFolder& folder, const record::Arm& arm, record::ArmRun* run, Gathered* gathered,
                record::Results* results) {
  const record::Metrics metrics = metrics_of(folder);
  const std::optional<train::RunState> state = state_of(folder);
  const RunProgress progress = progress_from(arm, folder, metrics, state);
  run->steps_done = progress.steps_done;
  run->finished = progress.finished();
  if (state) {
    run->seconds = state->seconds;
    results->versions.insert(state->versions.begin(), state->versions.end());
  }
  for (const record::EvaluationRecord& evaluation : metrics.evaluations) {
    gathered->curve[evaluation.step].push_back(evaluation.averaged.accuracy);
    gathered->test_images = evaluation.images;
  }
  for (const record::StepRecord& step : metrics.steps) add(step, &gathered->training[step.step]);
  gathered->evaluations.push_back(metrics.evaluations);
  if (!run->finished) return;
  gathered->test.push_back(progress.accuracy);
  if (const auto recall = metrics.evaluations.back().recall_at_5) gathered->recall_at_5.push_back(*recall);
  if (arm.train_accuracy) {
    gathered->training_set.push_back(eval_of(folder, kTrainingSetFile).value().averaged.accuracy);
  }
  if (arm.batch_statistics_accuracy) {
    gathered->batch_statistics.push_back(eval_of(folder, kBatchStatisticsFile).value().averaged.accuracy);
  }
  if (arm.extra_rows) gathered->longer.push_back(eval_of(folder, kLongerFile).value().averaged.accuracy);
}

Gathered gather_arm(const std::string& folder, record::Arm* arm, record::Results* results) {
  Gathered gathered;
  for (record::ArmRun& run : arm->runs) {
    gather_run(RunFolder(folder, run.folder), *arm, &run, &gathered, results);
  }
  arm->test_accuracy = record::measure_of(gathered.test);
  arm->test_images = gathered.test_images;
  arm->others.clear();
  if (!gathered.recall_at_5.empty()) {
    arm->others.push_back({"recall@5", record::measure_of(gathered.recall_at_5)});
  }
  if (gathered.test_images && results->test_images == 0) results->test_images = *gathered.test_images;
  if (arm->train_accuracy) arm->train_accuracy = record::measure_of(gathered.training_set);
  if (arm->batch_statistics_accuracy) {
    arm->batch_statistics_accuracy = record::measure_of(gathered.batch_statistics);
  }
  if (arm->extra_rows) {
    arm->others.push_back(
        {fmt::format("with {} more rows", *arm->extra_rows), record::measure_of(gathered.longer)});
  }
  arm->curve.clear();
  for (const auto& [step, values] : gathered.curve) {
    arm->curve.push_back({step, record::measure_of(values).mean, values});
  }
  arm->training.clear();
  for (const auto& entry : gathered.training) {
    arm->training.push_back(mean_of(entry.second));
    if (arm->renorm) continue;
    arm->training.back().r_clipped = std::numeric_limits<double>::quiet_NaN();
    arm->training.back().d_clipped = std::numeric_limits<double>::quiet_NaN();
  }
  return gathered;
}

// The name of the arm that an arm is compared with.
std::string reference_of(const record::Arm& arm, const record::Results& results) {
  for (const record::Figure& figure : results.figures) {
    if (figure.id == arm.figure) return figure.reference.value_or(results.reference);
  }
  return results.reference;
}

// Steps until each run first reaches the mean final accuracy of the reference arm. `gathered` has the order
// of the arms.
void add_steps_to_reference(const std::vector<Gathered>& gathered, record::Results* results) {
  for (size_t i = 0; i < gathered.size(); ++i) {
    record::Arm& arm = results->arms[i];
    const std::string name = reference_of(arm, *results);
    const auto reference = std::find_if(results->arms.begin(), results->arms.end(),
                                        [&](const record::Arm& other) { return other.name == name; });
    if (reference == results->arms.end() || reference->test_accuracy.values.empty()) continue;
    const double goal = reference->test_accuracy.mean;
    std::vector<double> steps;
    for (const std::vector<record::EvaluationRecord>& run : gathered[i].evaluations) {
      const auto reached = std::find_if(run.begin(), run.end(), [&](const record::EvaluationRecord& record) {
        return record.averaged.accuracy >= goal;
      });
      if (reached != run.end()) steps.push_back(static_cast<double>(reached->step));
    }
    arm.steps_to_reference = record::measure_of(steps);
  }
}

// The last `parts` names of a path: "seed-1", "ARM/seed-1".
std::string end_of_path(const std::string& folder, int parts) {
  std::filesystem::path rest = std::filesystem::absolute(folder).lexically_normal();
  if (!rest.has_filename()) rest = rest.parent_path();
  std::filesystem::path name = rest.filename();
  for (rest = rest.parent_path(); --parts > 0 && rest.has_filename(); rest = rest.parent_path()) {
    name = rest.filename() / name;
  }
  return name.empty() ? folder : name.string();
}

}  // namespace

RunProgress progress_of(const record::Arm& arm, const std::string& folder) {
  const RunFolder run(folder, ".");
  return progress_from(arm, run, metrics_of(run), state_of(run));
}

void gather(const std::string& folder, record::Results* results) {
  std::vector<Gathered> gathered;
  for (record::Arm& arm : results->arms) gathered.push_back(gather_arm(folder, &arm, results));
  results->finished = std::all_of(results->arms.begin(), results->arms.end(), [](const record::Arm& arm) {
    return std::all_of(arm.runs.begin(), arm.runs.end(), [](const auto& run) { return run.finished; });
  });
  const ExperimentKind* kind = find_experiment(results->name);
  if (kind == nullptr) return;
  results->reference = kind->reference;
  add_steps_to_reference(gathered, results);
  judge(kind->claims, results);
}

bool has_runs(const std::string& folder, const record::Results& results) {
  for (const record::Arm& arm : results.arms) {
    for (const record::ArmRun& run : arm.runs) {
      const train::RunPaths paths(fmt::format("{}/{}", folder, run.folder));
      if (train::contents_of(paths) == train::FolderContents::kRun) return true;
    }
  }
  return false;
}

std::vector<std::string> short_names(const std::vector<std::string>& folders) {
  constexpr int kMaxParts = 100;
  std::vector<std::string> names;
  for (int parts = 1; parts <= kMaxParts; ++parts) {
    names.clear();
    for (const std::string& folder : folders) names.push_back(end_of_path(folder, parts));
    if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) break;
  }
  return names;
}

record::Results results_of_runs(const std::vector<std::string>& folders) {
  record::Results results;
  results.name = "runs";
  results.title = folders.size() == 1 ? "A training run" : "Training runs";
  results.figures = {{"runs", "Test accuracy", "With averaged weights, where a run keeps them.", false}};
  const std::vector<std::string> names = short_names(folders);
  for (size_t i = 0; i < folders.size(); ++i) {
    const std::string& folder = folders[i];
    const train::RunPaths paths(folder);
    if (!exists(paths.config)) {
      throw MissingInputError(fmt::format(
          "'{}' holds no run of 'renorm train' and no results of 'renorm reproduce'", printable(folder)));
    }
    train::Config config;
    const RunFolder run(folder, ".");
    train::read_toml(run.read(run.inside().config, 1 << 20), paths.config, &config);
    record::Arm arm;
    arm.name = names[i];
    arm.figure = "runs";
    arm.label = fmt::format("{}: {}, {}, {}", arm.name, name_of(config.norm), config.model, config.sampler);
    arm.command = fmt::format("renorm train --config {}", paths.config);
    arm.renorm = config.norm == train::NormKind::kRenorm;
    arm.steps = config.steps;
    arm.runs = {{config.seed, ".", 0, 0.0, false}};
    gather_arm(folder, &arm, &results);
    results.data = config.data;
    results.model = config.model;
    results.steps = std::max(results.steps, config.steps);
    if (std::find(results.seeds.begin(), results.seeds.end(), config.seed) == results.seeds.end()) {
      results.seeds.push_back(config.seed);
    }
    results.arms.push_back(std::move(arm));
  }
  results.finished = std::all_of(results.arms.begin(), results.arms.end(),
                                 [](const record::Arm& arm) { return arm.runs.front().finished; });
  return results;
}

}  // namespace renorm::experiments
