#include "experiments/gather.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/errors.h"
#include "base/files.h"
#include "base/text.h"
#include "experiments/claims.h"
#include "experiments/experiment.h"
#include "record/json_fields.h"
#include "record/metrics.h"
#include "record/strict_json.h"
#include "train/checkpoint.h"
#include "train/run_folder.h"
#include "train/settings.h"

namespace renorm::experiments {
namespace {

bool exists(const std::string& path) {
  struct stat about = {};
  return stat(path.c_str(), &about) == 0;
}

record::Metrics metrics_of(const std::string& folder) {
  const std::string file = train::RunPaths(folder).metrics;
  if (!exists(file)) return {};
  return record::parse_metrics(read_file(file), file);
}

struct EvalFile {
  double accuracy = 0.0;
  int64_t step = 0;
};

EvalFile read_eval(const std::string& file) {
  const std::string where = printable(file);
  const nlohmann::json object = record::parse_json(read_file(file), where);
  if (!object.is_object()) throw DataError(fmt::format("{}: an evaluation must be a JSON object", where));
  EvalFile found;
  const record::FieldReader reader(object, where);
  reader("accuracy", found.accuracy);
  reader("step", found.step);
  return found;
}

bool is_trained(const record::Metrics& metrics, int64_t steps) {
  return !metrics.evaluations.empty() && metrics.evaluations.back().step == steps;
}

int64_t steps_of(const record::Metrics& metrics) {
  int64_t steps = metrics.steps.empty() ? 0 : metrics.steps.back().step;
  if (!metrics.evaluations.empty()) steps = std::max(steps, metrics.evaluations.back().step);
  return steps;
}

RunProgress progress_from(const record::Arm& arm, const std::string& folder, const record::Metrics& metrics) {
  RunProgress progress;
  progress.steps_done = steps_of(metrics);
  if (!metrics.evaluations.empty()) progress.accuracy = metrics.evaluations.back().averaged.accuracy;
  progress.trained = is_trained(metrics, arm.steps);
  const auto lacks = [&](const char* name) { return !exists(fmt::format("{}/{}", folder, name)); };
  progress.needs_training_set = arm.train_accuracy.has_value() && lacks(kTrainingSetFile);
  progress.needs_batch_statistics = arm.batch_statistics_accuracy.has_value() && lacks(kBatchStatisticsFile);
  return progress;
}

// The newest checkpoint's own words; a run that has none yet has no versions and no time.
void add_state(const std::string& folder, record::ArmRun* run, record::Results* results) {
  const std::string file = train::RunPaths(folder).checkpoints + "/last/state.json";
  if (!exists(file)) return;
  const train::RunState state = train::parse_run_state(read_file(file), printable(file));
  run->seconds = state.seconds;
  results->versions.insert(state.versions.begin(), state.versions.end());
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
  std::vector<double> test;
  std::vector<double> training_set;
  std::vector<double> batch_statistics;
};

void gather_run(const std::string& folder, const record::Arm& arm, record::ArmRun* run, Gathered* gathered,
                record::Results* results) {
  const record::Metrics metrics = metrics_of(folder);
  const RunProgress progress = progress_from(arm, folder, metrics);
  run->steps_done = progress.steps_done;
  run->finished = progress.finished();
  add_state(folder, run, results);
  for (const record::EvaluationRecord& evaluation : metrics.evaluations) {
    gathered->curve[evaluation.step].push_back(evaluation.averaged.accuracy);
    results->test_images = evaluation.images;
  }
  for (const record::StepRecord& step : metrics.steps) add(step, &gathered->training[step.step]);
  gathered->evaluations.push_back(metrics.evaluations);
  if (!run->finished) return;
  gathered->test.push_back(progress.accuracy);
  if (arm.train_accuracy) {
    gathered->training_set.push_back(read_eval(fmt::format("{}/{}", folder, kTrainingSetFile)).accuracy);
  }
  if (arm.batch_statistics_accuracy) {
    gathered->batch_statistics.push_back(
        read_eval(fmt::format("{}/{}", folder, kBatchStatisticsFile)).accuracy);
  }
}

Gathered gather_arm(const std::string& folder, record::Arm* arm, record::Results* results) {
  Gathered gathered;
  for (record::ArmRun& run : arm->runs) {
    gather_run(fmt::format("{}/{}", folder, run.folder), *arm, &run, &gathered, results);
  }
  arm->test_accuracy = record::measure_of(gathered.test);
  if (arm->train_accuracy) arm->train_accuracy = record::measure_of(gathered.training_set);
  if (arm->batch_statistics_accuracy) {
    arm->batch_statistics_accuracy = record::measure_of(gathered.batch_statistics);
  }
  arm->curve.clear();
  for (const auto& [step, values] : gathered.curve) {
    arm->curve.push_back({step, record::measure_of(values).mean, values});
  }
  arm->training.clear();
  for (const auto& entry : gathered.training) arm->training.push_back(mean_of(entry.second));
  return gathered;
}

// Steps until each run first reaches the mean final accuracy of i.i.d. batchnorm. `gathered` has the order of
// the arms.
void add_steps_to_reference(const std::vector<Gathered>& gathered, record::Results* results) {
  const auto reference = std::find_if(results->arms.begin(), results->arms.end(),
                                      [](const record::Arm& arm) { return arm.name == "iid-batchnorm"; });
  if (reference == results->arms.end() || reference->test_accuracy.values.empty()) return;
  const double goal = reference->test_accuracy.mean;
  for (size_t i = 0; i < gathered.size(); ++i) {
    std::vector<double> steps;
    for (const std::vector<record::EvaluationRecord>& run : gathered[i].evaluations) {
      const auto reached = std::find_if(run.begin(), run.end(), [&](const record::EvaluationRecord& record) {
        return record.averaged.accuracy >= goal;
      });
      if (reached != run.end()) steps.push_back(static_cast<double>(reached->step));
    }
    results->arms[i].steps_to_reference = record::measure_of(steps);
  }
}

std::string name_of(const std::string& folder) {
  const std::filesystem::path path = std::filesystem::absolute(folder).lexically_normal();
  const std::filesystem::path name = path.has_filename() ? path.filename() : path.parent_path().filename();
  return name.empty() ? folder : name.string();
}

}  // namespace

RunProgress progress_of(const record::Arm& arm, const std::string& folder) {
  return progress_from(arm, folder, metrics_of(folder));
}

void gather(const std::string& folder, record::Results* results) {
  std::vector<Gathered> gathered;
  for (record::Arm& arm : results->arms) gathered.push_back(gather_arm(folder, &arm, results));
  results->finished = std::all_of(results->arms.begin(), results->arms.end(), [](const record::Arm& arm) {
    return std::all_of(arm.runs.begin(), arm.runs.end(), [](const auto& run) { return run.finished; });
  });
  add_steps_to_reference(gathered, results);
  judge(results);
}

bool has_runs(const std::string& folder, const record::Results& results) {
  for (const record::Arm& arm : results.arms) {
    for (const record::ArmRun& run : arm.runs) {
      if (exists(train::RunPaths(fmt::format("{}/{}", folder, run.folder)).config)) return true;
    }
  }
  return false;
}

record::Results results_of_runs(const std::vector<std::string>& folders) {
  record::Results results;
  results.name = "runs";
  results.title = folders.size() == 1 ? "A training run" : "Training runs";
  results.figures = {{"runs", "Test accuracy", "With averaged weights, where a run keeps them.", false}};
  for (const std::string& folder : folders) {
    const train::RunPaths paths(folder);
    if (!exists(paths.config)) {
      throw MissingInputError(fmt::format(
          "'{}' holds no run of 'renorm train' and no results of 'renorm reproduce'", printable(folder)));
    }
    train::Config config;
    train::read_toml(read_file(paths.config, 1 << 20), paths.config, &config);
    record::Arm arm;
    arm.name = name_of(folder);
    arm.figure = "runs";
    arm.label = fmt::format("{}, {}, {}", config.norm, config.model, config.sampler);
    arm.command = fmt::format("renorm train --config {}", paths.config);
    arm.renorm = config.norm == "renorm";
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
