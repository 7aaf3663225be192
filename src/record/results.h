// The results of an experiment: results.json, the source of tables and reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace renorm::record {

// A figure over the seeds of an arm, in their order. Empty until the first seed has a value.
struct Measure {
  double mean = 0.0;
  double spread = 0.0;  // standard deviation (n - 1); 0 for one seed
  std::vector<double> values;
};
Measure measure_of(std::vector<double> values);

// A further figure of an arm.
struct NamedMeasure {
  std::string name;  // "recall@5, %"
  Measure measure;
};

// Test accuracy (percent, averaged weights) after a number of steps, of the seeds that are that far. When all
// seeds are finished, the values are in the order of the seeds.
struct CurvePoint {
  int64_t step = 0;
  double mean = 0.0;
  std::vector<double> values;
};

// Figures of one training step, with the limits of r and d and the fractions that they clipped; means over
// the seeds. Fractions are of all (group, channel) pairs, averaged over the layers; NaN for batchnorm.
struct TrainingPoint {
  int64_t step = 0;
  double loss = 0.0;
  double accuracy = 0.0;  // percent
  double learning_rate = 0.0;
  double r_max = 1.0;
  double d_max = 0.0;
  double r_clipped = 0.0;
  double d_clipped = 0.0;
};

// Figures of the paper for an arm, in percent.
struct PaperFigures {
  std::optional<double> test_accuracy;
  std::optional<double> train_accuracy;
  std::optional<double> batch_statistics_accuracy;
  std::string note;  // "at 210k steps"; may be empty
};

struct ArmRun {
  uint64_t seed = 0;
  std::string folder;  // relative to the folder of the experiment
  int64_t steps_done = 0;
  double seconds = 0.0;  // of training and evaluation, by the clock
  bool finished = false;
};

// Where an arm is on an axis that is a setting.
struct Place {
  double at = 0.0;
  std::string text;  // of the tick: "16x2"
};

struct Arm {
  std::string name;
  std::string figure;   // id of the figure that shows it
  std::string label;    // "batchnorm, minibatches of 16 x 2"
  std::string command;  // trains it by hand
  bool renorm = false;
  int64_t steps = 0;
  PaperFigures paper;
  Measure test_accuracy;
  std::optional<Measure> train_accuracy;             // where the experiment measures it
  std::optional<Measure> batch_statistics_accuracy;  // as above
  std::string batch_statistics_sampler;              // of that measure; "" without it
  std::vector<NamedMeasure> others;
  std::optional<int64_t> extra_rows;   // of an evaluation on longer sequences, the last of `others`
  std::optional<int64_t> test_images;  // of the arm's data, once it was evaluated
  std::optional<Place> x;              // where its figure has such an axis
  std::optional<Place> y;
  std::optional<std::string> series;  // arms with the same text are points of one line; needs x
  // Steps until the final accuracy of the reference arm, of the seeds that reached it.
  Measure steps_to_reference;
  std::vector<CurvePoint> curve;
  std::vector<TrainingPoint> training;
  std::vector<ArmRun> runs;
};

// An axis of a figure that is a setting.
struct Axis {
  std::string name;
  bool logarithmic = false;
};

// Its arms are curves over the steps; with x, points over a setting; with x and y, cells of a heat map.
struct Figure {
  std::string id;
  std::string title;
  std::string caption;
  bool in_paper = true;
  std::optional<std::string> data{};       // where it is not that of the results
  std::optional<std::string> model{};      // as above
  std::optional<std::string> reference{};  // as above; the name of the arm that is repeated in the figure
  std::optional<Axis> x{};
  std::optional<Axis> y{};
};

// Of two accuracies, in percentage points, with half of its 95 % interval.
struct Difference {
  double mean = 0.0;
  double half_width = 0.0;      // paired by seed; with one seed, from the size of the test set
  std::optional<double> welch;  // Welch's, which does not pair; without two seeds of each there is none
};

struct Claim {
  std::string text;
  std::string verdict;   // "holds", "does not hold", "not resolved"
  std::string evidence;  // the figures that decided
  bool in_paper = true;
  std::optional<Difference> difference{};  // of a claim about one
};

struct Results {
  std::string name;                    // "quick", "full"; "runs" if it is no experiment
  std::string title;                   // heading
  std::optional<std::string> measure;  // what test_accuracy holds, if it is not an accuracy: "recall@1"
  // Name of the arm that others are compared with; not stored, set by read_results and gather.
  std::string reference;
  std::string data;  // spec
  std::string model;
  int64_t steps = 0;
  std::vector<uint64_t> seeds;
  std::string command;  // makes the folder
  std::map<std::string, std::string> versions;
  int64_t test_images = 0;
  bool finished = false;
  std::string test;  // how verdicts are reached
  std::vector<Figure> figures;
  std::vector<Arm> arms;
  std::vector<Claim> claims;
};

constexpr const char* kHolds = "holds";
constexpr const char* kDoesNotHold = "does not hold";
constexpr const char* kNotResolved = "not resolved";

// Indented, ends with a newline. Doubles read back to the same bits; a value that is not finite is written as
// null and read as NaN. Bytes that are not UTF-8 are replaced.
std::string to_json(const Results& results);

// Throws DataError "FILE: ...", also for the folder of a run that is not below that of the results. Unknown
// keys are ignored, so that results may grow.
Results parse_results(const std::string& text, const std::string& file);

}  // namespace renorm::record
