#include "samples.h"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "base/random.h"

namespace renorm::report::testing {
namespace {

using record::Arm;
using record::Results;

constexpr int64_t kSteps = 4000;
constexpr int64_t kEvaluations = 40;

struct Shape {
  const char* name;
  const char* figure;
  const char* label;
  bool renorm;
  double level;  // accuracy in the end, percent
  double speed;  // of learning
  double paper;  // 0: not in the paper
};

constexpr Shape kShapes[] = {
    {"iid-batchnorm", "iid", "batchnorm, i.i.d. minibatches of 32", false, 89.9, 1.0, 78.3},
    {"iid-renorm", "iid", "Batch Renorm, i.i.d. minibatches of 32", true, 89.3, 1.0, 78.5},
    {"micro4-batchnorm", "micro4", "batchnorm, microbatches of 4", false, 85.5, 0.6, 74.2},
    {"micro4-renorm", "micro4", "Batch Renorm, microbatches of 4", true, 86.9, 0.8, 76.5},
    {"pairs-batchnorm", "pairs", "batchnorm, minibatches of 16 x 2", false, 87.6, 0.9, 67.0},
    {"pairs-halves", "pairs", "batchnorm, pairs split over halves", false, 88.4, 0.9, 77.4},
    {"pairs-renorm", "pairs", "Batch Renorm, minibatches of 16 x 2", true, 88.1, 0.9, 78.5},
    {"blocks-batchnorm", "blocks", "batchnorm, 8 neighbouring classes a minibatch", false, 69.0, 0.9, 0.0},
    {"blocks-dealt", "blocks", "batchnorm, the same images dealt over minibatches", false, 87.6, 0.9, 0.0},
    {"blocks-renorm", "blocks", "Batch Renorm, 8 neighbouring classes a minibatch", true, 86.6, 0.8, 0.0},
};

double learning_curve(const Shape& shape, double progress, double noise) {
  const double rise = 1.0 - std::exp(-7.0 * shape.speed * progress);
  return std::clamp(shape.level * rise + noise * (0.4 + 4.0 * (1.0 - progress)), 0.5, 100.0);
}

void add_curve(const Shape& shape, int seeds, double done, RandomStream& stream, Arm* arm) {
  for (int64_t i = 1; i <= kEvaluations; ++i) {
    const double progress = static_cast<double>(i) / static_cast<double>(kEvaluations);
    if (progress > done) break;
    std::vector<double> values(static_cast<size_t>(seeds));
    for (double& value : values) value = learning_curve(shape, progress, stream.normal());
    const record::Measure measure = record::measure_of(values);
    arm->curve.push_back({i * kSteps / kEvaluations, measure.mean, values});
  }
}

void add_training(const Shape& shape, double done, RandomStream& stream, Arm* arm) {
  for (int64_t step = 10; step <= static_cast<int64_t>(done * static_cast<double>(kSteps)); step += 10) {
    const double progress = static_cast<double>(step) / static_cast<double>(kSteps);
    record::TrainingPoint point;
    point.step = step;
    point.loss = 5.3 * std::exp(-4.5 * shape.speed * progress) + 0.3 + 0.08 * stream.normal();
    point.accuracy = learning_curve(shape, progress, stream.normal());
    point.learning_rate = 0.003 * std::exp(-3.0 * progress);
    if (shape.renorm) {
      point.r_max = 1.0 + 2.0 * std::clamp((progress - 0.04) / 0.27, 0.0, 1.0);
      point.d_max = 5.0 * std::clamp((progress - 0.04) / 0.15, 0.0, 1.0);
      const double bias = shape.figure[0] == 'b' ? 3.0 : 1.0;
      point.r_clipped = bias * 0.02 * std::exp(-4.0 * progress) * (1.0 + 0.2 * stream.normal());
      point.d_clipped = point.r_clipped * 0.1;
    }
    arm->training.push_back(point);
  }
}

void add_paper(const Shape& shape, Arm* arm) {
  if (shape.paper == 0.0) return;
  arm->paper.test_accuracy = shape.paper;
  if (arm->name == "micro4-batchnorm") arm->paper.note = "slow";
  if (arm->name != "pairs-batchnorm") return;
  arm->paper.train_accuracy = 72.8;
  arm->paper.batch_statistics_accuracy = 76.5;
}

void add_finals(const Shape& shape, int seeds, RandomStream& stream, Arm* arm) {
  arm->test_accuracy = record::measure_of(arm->curve.back().values);
  std::vector<double> reached;
  for (int s = 0; s < seeds && shape.level > 88.0 + s; ++s) reached.push_back(3600.0 + 100.0 * s);
  arm->steps_to_reference = record::measure_of(reached);
  if (arm->name != "pairs-batchnorm" && arm->name != "blocks-batchnorm") return;
  std::vector<double> train;
  std::vector<double> batch;
  for (int s = 0; s < seeds; ++s) {
    train.push_back(shape.level + 6.0 + stream.normal());
    batch.push_back(std::min(93.6, shape.level + 20.0) + 0.3 * stream.normal());
  }
  arm->train_accuracy = record::measure_of(train);
  arm->batch_statistics_accuracy = record::measure_of(batch);
  arm->batch_statistics_sampler = arm->name == "pairs-batchnorm" ? "labels:25x2" : "blocks:8x16x2";
}

Arm make_arm(const Shape& shape, int seeds, double done, uint64_t index) {
  RandomStream stream(7, Purpose::kEvaluation, index);
  Arm arm;
  arm.name = shape.name;
  arm.figure = shape.figure;
  arm.label = shape.label;
  arm.command = std::string("renorm train --out runs/") + shape.name + " --steps 4000 --norm " +
                (shape.renorm ? "renorm" : "batchnorm") + " --data strokes:classes=200,train=200,test=20";
  arm.renorm = shape.renorm;
  arm.steps = kSteps;
  add_paper(shape, &arm);
  add_curve(shape, seeds, done, stream, &arm);
  add_training(shape, done, stream, &arm);
  if (done >= 1.0) add_finals(shape, seeds, stream, &arm);
  for (int s = 0; s < seeds && done > 0.0; ++s) {
    arm.runs.push_back({static_cast<uint64_t>(s + 1), "arms/" + arm.name + "/" + std::to_string(s + 1),
                        static_cast<int64_t>(done * static_cast<double>(kSteps)), 125.0 * done, done >= 1.0});
  }
  return arm;
}

Results frame(const std::string& title) {
  Results results;
  results.name = "sample";
  results.title = title;
  results.reference = "iid-batchnorm";
  results.data = "strokes:classes=200,train=200,test=20,size=20";
  results.model = "inception-small";
  results.steps = kSteps;
  results.seeds = {1, 2, 3};
  results.command = "renorm reproduce --full --seeds 3 --out runs/paper";
  results.versions = {{"renorm", "0.1.0"}, {"libtorch", "1.13.1"}, {"compiler", "GCC 12.2.0"}};
  results.test_images = 4000;
  results.test =
      "the difference of the means over the seeds against twice its standard error; below one point nothing "
      "is "
      "decided.";
  results.figures = {
      {"iid", "Independent minibatches", "Batchnorm and Batch Renorm where batchnorm is at home.", true},
      {"micro4", "Microbatches of 4", "Statistics over 4 examples each.", true},
      {"pairs", "Minibatches of 16 labels with 2 images each", "The paper's biased minibatches.", true},
      {"blocks", "Minibatches of 8 neighbouring classes", "A stronger bias.", false},
  };
  return results;
}

void add_claims(Results* results) {
  results->claims = {
      {"Batchnorm and Batch Renorm agree on i.i.d. minibatches.", record::kHolds, "89.9 against 89.3", true},
      {"At microbatches of 4 Batch Renorm beats batchnorm.", record::kHolds, "86.9 against 85.5", true},
      {"At microbatches of 4 Batch Renorm stays below minibatches of 32.", record::kHolds,
       "86.9 against 89.3", true},
      {"Batchnorm loses on minibatches of 16 x 2.", record::kDoesNotHold, "87.6 against 89.9", true},
      {"Batch Renorm recovers to the i.i.d. level on 16 x 2.", record::kNotResolved,
       "88.1 ± 0.4 against 89.9 ± 0.3: too few seeds", true},
      {"Batchnorm loses on blocks of classes, also on the training set.", record::kHolds, "69.0 against 89.9",
       false},
  };
}

// Two figures over settings, all of whose texts are these.
void add_settings(const std::string& text, const std::string& other, Results* results) {
  for (const bool is_map : {false, true}) {
    record::Figure figure{is_map ? "map" : "line", text, other, false};
    figure.data = text;
    figure.model = other;
    figure.x = record::Axis{text, true};
    if (is_map) figure.y = record::Axis{other, false};
    results->figures.push_back(figure);
    for (int i = 1; i <= 2; ++i) {
      Arm arm = results->arms[3];
      arm.figure = figure.id;
      arm.label = other;
      arm.x = record::Place{1.0 * i, text};
      arm.y = record::Place{1.0 * i, other};
      arm.series = i == 1 ? text : other;
      arm.others = {{text, record::measure_of({1.0})}};
      results->arms.push_back(arm);
    }
  }
}

}  // namespace

Results whole_experiment() {
  Results results = frame("Sample for the test of the report");
  for (const Shape& shape : kShapes) results.arms.push_back(make_arm(shape, 3, 1.0, results.arms.size()));
  add_claims(&results);
  results.finished = true;
  return results;
}

Results unfinished_experiment() {
  Results results = frame("Sample for the test of the report: unfinished");
  for (const Shape& shape : kShapes) {
    const double done = results.arms.empty() ? 1.0 : (results.arms.size() == 1 ? 0.4 : 0.0);
    results.arms.push_back(make_arm(shape, 3, done, results.arms.size()));
  }
  add_claims(&results);
  for (record::Claim& claim : results.claims) {
    claim.verdict = record::kNotResolved;
    claim.evidence = "not measured yet";
  }
  return results;
}

Results single_run() {
  Results results = frame("Sample for the test of the report: a single run");
  results.seeds = {1};
  results.test = "";
  results.command = "renorm train --out runs/first";
  results.figures = {{"run", "The run", "", false}};
  Arm arm = make_arm(kShapes[1], 1, 1.0, 0);
  arm.name = "first";
  arm.figure = "run";
  arm.label = "runs/first";
  arm.paper = {};
  arm.steps_to_reference = {};
  results.arms = {arm};
  results.finished = true;
  return results;
}

Results hostile_experiment() {
  const std::string breakout = "</script><script>window.broken=1</script><img src=x onerror=window.broken=2>";
  const std::string quotes = "\"' onmouseover='window.broken=3' \xff\xfe\xc3 \xe2\x80\xae <!-- \xe2\x80\xa8";
  Results results = whole_experiment();
  results.title = "Sample for the test of the report: " + breakout;
  results.command = quotes + breakout;
  results.data = breakout;
  results.model = quotes;
  results.test = breakout;
  results.versions = {{breakout, quotes}};
  results.figures[0].title = breakout;
  results.figures[0].caption = quotes;
  results.claims[0] = {breakout, "</span>" + breakout, quotes, false};
  Arm& arm = results.arms[0];
  arm.label = breakout;
  arm.name = quotes;
  arm.command = breakout;
  arm.runs[0].folder = breakout;
  arm.batch_statistics_sampler = breakout;
  arm.batch_statistics_accuracy = record::measure_of({1.0});
  arm.paper.note = quotes;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  results.arms[1].figure = "no such figure";
  results.arms[1].curve[20].mean = kNan;
  results.arms[1].curve[20].values = {kNan, kNan, kNan};
  results.arms[1].test_accuracy = record::measure_of({kNan, kNan});
  results.arms[1].training[7].loss = std::numeric_limits<double>::infinity();
  results.arms[2].name = std::string(3000, 'w');
  results.arms[2].label = std::string(300, 'w');
  results.measure = breakout;
  add_settings(breakout, quotes, &results);
  return results;
}

std::string small_png() {
  constexpr int kSide = 220;
  std::vector<uint8_t> pixels(static_cast<size_t>(kSide * kSide));
  for (int i = 0; i < kSide * kSide; ++i) {
    pixels[static_cast<size_t>(i)] = static_cast<uint8_t>((i % kSide / 22 + i / kSide / 22) % 2 * 120 + 100);
  }
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = header.height = kSide;
  header.format = PNG_FORMAT_GRAY;
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(header), '\0');
  png_alloc_size_t size = bytes.size();
  if (png_image_write_to_memory(&header, bytes.data(), &size, 0, pixels.data(), 0, nullptr) == 0) {
    throw std::runtime_error(header.message);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace renorm::report::testing
