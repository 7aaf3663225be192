#include <string>
#include <vector>

#include "samples.h"

namespace renorm::report::testing {
namespace {

using record::Arm;
using record::Results;

constexpr const char* kDecoys = "strokes:classes=50,train=200,test=40,decoy=0.7";

Arm setting_arm(const std::string& figure, bool renorm, const record::Place& x, double level, int seeds) {
  Arm arm;
  arm.figure = figure;
  arm.renorm = renorm;
  arm.series = renorm ? "Batch Renorm" : "batchnorm";
  arm.name = figure + "-" + (renorm ? "renorm" : "batchnorm") + "-" + x.text;
  arm.label = *arm.series + ", " + x.text;
  arm.steps = 4000;
  arm.x = x;
  std::vector<double> values;
  for (int seed = 1; seed <= seeds; ++seed) values.push_back(level + 1.5 * (seed - 2));
  arm.test_accuracy = record::measure_of(values);
  for (int seed = 1; seed <= seeds; ++seed) {
    arm.runs.push_back({static_cast<uint64_t>(seed), "runs/" + arm.name + "/seed-" + std::to_string(seed),
                        4000, 60.0, true});
  }
  arm.test_images = 2000;
  return arm;
}

record::Figure figure_of(const std::string& id, const std::string& title, const std::string& caption) {
  record::Figure figure;
  figure.id = id;
  figure.title = title;
  figure.caption = caption;
  figure.in_paper = false;
  return figure;
}

// Batchnorm gets worse with the images per label, Batch Renorm does not.
void add_strength(Results* results) {
  record::Figure figure =
      figure_of("strength", "Bias of the minibatches", "The more images a label has, the stronger.");
  figure.data = kDecoys;
  figure.model = "mlp:512,512,512";
  figure.reference = "strength-iid";
  figure.x = record::Axis{"images per label", true};
  results->figures.push_back(figure);
  const std::vector<record::Place> places = {{1, "32x1"}, {2, "16x2"}, {4, "8x4"}, {8, "4x8"}, {16, "2x16"}};
  for (const bool renorm : {false, true}) {
    double level = 73.0;
    for (const record::Place& place : places) {
      const int seeds = renorm && place.text == "2x16" ? 1 : 3;
      results->arms.push_back(setting_arm("strength", renorm, place, level, seeds));
      results->arms.back().others = {{"recall@5, %", record::measure_of({level + 10.0, level + 11.0})}};
      level -= renorm ? 0.7 : 9.0;
    }
  }
  Arm level = setting_arm("strength", false, {0, "split"}, 70.0, 3);
  level.name = "strength-split";
  level.label = "batchnorm";  // the name of a series
  level.x = std::nullopt;
  level.series = std::nullopt;
  results->arms.push_back(level);
  Arm reference = level;
  reference.name = "strength-iid";
  reference.label = "independent minibatches";
  reference.figure = "iid";
  reference.test_accuracy = record::measure_of({74.0, 74.5, 75.0});
  results->arms.push_back(reference);
}

void add_grid(Results* results) {
  record::Figure figure = figure_of("grid", "Limits of the clipping", "");
  figure.data = kDecoys;
  figure.x = record::Axis{"r_max", false};
  figure.y = record::Axis{"d_max", false};
  results->figures.push_back(figure);
  for (const bool renorm : {true, false}) {
    for (int r = 1; r <= 5; ++r) {
      for (int d = 0; d <= 3; ++d) {
        if (r == 5 && d == 3) continue;
        Arm arm = setting_arm("grid", renorm, {1.0 * r, std::to_string(r)}, 50.0 + 4.0 * r + 2.5 * d, 3);
        arm.y = record::Place{1.0 * d, "d" + std::to_string(d)};
        arm.name += "-" + std::to_string(d);
        arm.series = renorm ? "learning rate 0.003" : "learning rate 0.01";
        if (r == 4 && d == 0) arm.test_accuracy = {};
        results->arms.push_back(arm);
      }
    }
  }
}

}  // namespace

Results settings_experiment() {
  Results results = whole_experiment();
  results.title = "Sample for the test of the report: settings";
  results.measure = "recall@1";
  results.figures.resize(1);
  results.arms.resize(2);
  add_strength(&results);
  add_grid(&results);
  return results;
}

}  // namespace renorm::report::testing
