// What a run leaves in metrics.jsonl (one JSON object a line) and summary.csv. Read by `eval`, reports and
// people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace renorm::record {

struct Summary {
  double mean = 0.0;
  double std = 0.0;
  double min = 0.0;
  double max = 0.0;
};

// One Batch Renorm layer since the last record: fractions of all (group, channel) pairs, r and d before
// clipping.
struct LayerClips {
  std::string name;
  double r_clipped_above = 0.0;
  double r_clipped_below = 0.0;
  double d_clipped = 0.0;
  Summary r;
  Summary d;
};

// {"kind": "step", ...}: means over the steps since the last record.
struct StepRecord {
  int64_t step = 0;  // steps done
  double epoch = 0.0;
  double loss = 0.0;
  double accuracy = 0.0;  // percent, of the training minibatches as they were seen
  double learning_rate = 0.0;
  double gradient_norm = 0.0;  // of the last step, before clipping
  double r_max = 1.0;
  double d_max = 0.0;
  double r_clipped_above = 0.0;  // means over the layers
  double r_clipped_below = 0.0;
  double d_clipped = 0.0;
  double images_per_second = 0.0;
  // Only for data that is read as it is used: how much of the time since the last record was spent waiting
  // for it, and training images that could not be read since the run began.
  std::optional<double> data_wait_percent;
  std::optional<int64_t> skipped_images;
  std::vector<LayerClips> layers;
};

struct Score {
  double accuracy = 0.0;  // percent
  double loss = 0.0;
};

// {"kind": "evaluation", ...}
struct EvaluationRecord {
  int64_t step = 0;
  double epoch = 0.0;
  std::string split;  // "test"
  int64_t images = 0;
  Score averaged;                         // keys accuracy and loss: with the averaged weights
  Score raw;                              // keys raw_accuracy and raw_loss
  double seconds = 0.0;                   // time of the evaluation
  std::optional<int64_t> skipped_images;  // that could not be read and are not counted
};

// One line without its newline. Keys are named like the fields. Doubles read back to the same bits; one that
// is not finite is written as null and read as NaN.
std::string to_json_line(const StepRecord& record);
std::string to_json_line(const EvaluationRecord& record);

struct Metrics {
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;
};

// Keys that are not known are left alone, so that records may grow. A last line without its newline may be
// cut short (a run that is being written or was killed) and is then ignored. Throws DataError "FILE:LINE:
// ...".
Metrics parse_metrics(const std::string& text, const std::string& file);

std::string summary_csv_header();  // without newline
// One row an evaluation, with the last step record before it.
std::string summary_csv_row(const EvaluationRecord& evaluation, const StepRecord& step);

}  // namespace renorm::record
