// The records of a run: metrics.jsonl (one JSON object per line) and summary.csv.
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

// One Batch Renorm layer in one step: fractions of all (group, channel) pairs, and r and d before clipping.
struct LayerClips {
  std::string name;
  double r_clipped_above = 0.0;
  double r_clipped_below = 0.0;
  double d_clipped = 0.0;
  Summary r;
  Summary d;
};

// {"kind": "step", ...}: the figures of one step, not means over the steps since the last record. Only
// images_per_second and data_wait_percent cover all the time since then, and skipped_images the whole run.
struct StepRecord {
  int64_t step = 0;  // steps done
  double epoch = 0.0;
  double loss = 0.0;
  double accuracy = 0.0;  // percent, on the training images of the step
  double learning_rate = 0.0;
  double gradient_norm = 0.0;  // before clipping
  double r_max = 1.0;
  double d_max = 0.0;
  double r_clipped_above = 0.0;  // means over the layers
  double r_clipped_below = 0.0;
  double d_clipped = 0.0;
  double images_per_second = 0.0;
  // Only for data that is read while training: the time spent waiting for it, and the number of training
  // images that could not be read since the run began.
  std::optional<double> data_wait_percent;
  std::optional<int64_t> skipped_images;
  std::vector<LayerClips> layers;
  std::optional<std::string> run = {};  // the id of the run, in the first line of the file
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
  double seconds = 0.0;                   // that the evaluation took
  std::optional<int64_t> skipped_images;  // not counted, because they could not be read
  // Of embeddings, percent, with the averaged weights. The accuracies are then recall@1, and there is no
  // loss.
  std::optional<double> recall_at_5 = {};
  std::optional<std::string> run = {};  // the id of the run, in the first line of the file
};

template <typename Record>
struct Fields;  // record/json.h

// Here, because checkpoints hold records as well.
template <>
struct Fields<Summary> {
  template <typename Record, typename Visitor>
  static void visit(Record& summary, const Visitor& visit) {
    visit("mean", summary.mean);
    visit("std", summary.std);
    visit("min", summary.min);
    visit("max", summary.max);
  }
};

template <>
struct Fields<LayerClips> {
  template <typename Record, typename Visitor>
  static void visit(Record& layer, const Visitor& visit) {
    visit("name", layer.name);
    visit("r_clipped_above", layer.r_clipped_above);
    visit("r_clipped_below", layer.r_clipped_below);
    visit("d_clipped", layer.d_clipped);
    visit("r", layer.r);
    visit("d", layer.d);
  }
};

template <>
struct Fields<StepRecord> {
  template <typename Record, typename Visitor>
  static void visit(Record& record, const Visitor& visit) {
    std::string kind = "step";
    visit("kind", kind);
    visit("run", record.run);
    visit("step", record.step);
    visit("epoch", record.epoch);
    visit("loss", record.loss);
    visit("accuracy", record.accuracy);
    visit("learning_rate", record.learning_rate);
    visit("gradient_norm", record.gradient_norm);
    visit("r_max", record.r_max);
    visit("d_max", record.d_max);
    visit("r_clipped_above", record.r_clipped_above);
    visit("r_clipped_below", record.r_clipped_below);
    visit("d_clipped", record.d_clipped);
    visit("images_per_second", record.images_per_second);
    visit("data_wait_percent", record.data_wait_percent);
    visit("skipped_images", record.skipped_images);
    visit("layers", record.layers);
  }
};

template <>
struct Fields<EvaluationRecord> {
  template <typename Record, typename Visitor>
  static void visit(Record& record, const Visitor& visit) {
    std::string kind = "evaluation";
    visit("kind", kind);
    visit("run", record.run);
    visit("step", record.step);
    visit("epoch", record.epoch);
    visit("split", record.split);
    visit("images", record.images);
    visit("accuracy", record.averaged.accuracy);
    visit("loss", record.averaged.loss);
    visit("raw_accuracy", record.raw.accuracy);
    visit("raw_loss", record.raw.loss);
    visit("seconds", record.seconds);
    visit("skipped_images", record.skipped_images);
    visit("recall_at_5", record.recall_at_5);
  }
};

// One line without its newline. Keys have the names of the fields. Doubles read back to the same bits; a
// value that is not finite is written as null and read as NaN.
std::string to_json_line(const StepRecord& record);
std::string to_json_line(const EvaluationRecord& record);
constexpr const char* kRecordStart = "{\"kind\":\"";  // of every such line

struct Metrics {
  std::vector<StepRecord> steps;
  std::vector<EvaluationRecord> evaluations;

  // The id of the run; empty if no record has one.
  std::optional<std::string> run() const;
};

// Unknown keys are ignored, so that records may grow. A last line without its newline may be cut short (the
// run is still writing or was killed) and is then ignored. Throws DataError "FILE:LINE: ...".
Metrics parse_metrics(const std::string& text, const std::string& file);

std::string summary_csv_header();  // without newline
// One row per evaluation, with the last step record before it.
std::string summary_csv_row(const EvaluationRecord& evaluation, const StepRecord& step);

}  // namespace renorm::record
