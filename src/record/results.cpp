#include "record/results.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/foreign_folder.h"
#include "base/text.h"
#include "record/json.h"

namespace renorm::record {

template <>
struct Fields<Measure> {
  template <typename Record, typename Visitor>
  static void visit(Record& measure, const Visitor& visit) {
    visit("mean", measure.mean);
    visit("spread", measure.spread);
    visit("values", measure.values);
  }
};

template <>
struct Fields<NamedMeasure> {
  template <typename Record, typename Visitor>
  static void visit(Record& named, const Visitor& visit) {
    visit("name", named.name);
    visit("measure", named.measure);
  }
};

template <>
struct Fields<CurvePoint> {
  template <typename Record, typename Visitor>
  static void visit(Record& point, const Visitor& visit) {
    visit("step", point.step);
    visit("mean", point.mean);
    visit("values", point.values);
  }
};

template <>
struct Fields<TrainingPoint> {
  template <typename Record, typename Visitor>
  static void visit(Record& point, const Visitor& visit) {
    visit("step", point.step);
    visit("loss", point.loss);
    visit("accuracy", point.accuracy);
    visit("learning_rate", point.learning_rate);
    visit("r_max", point.r_max);
    visit("d_max", point.d_max);
    visit("r_clipped", point.r_clipped);
    visit("d_clipped", point.d_clipped);
  }
};

template <>
struct Fields<PaperFigures> {
  template <typename Record, typename Visitor>
  static void visit(Record& paper, const Visitor& visit) {
    visit("test_accuracy", paper.test_accuracy);
    visit("train_accuracy", paper.train_accuracy);
    visit("batch_statistics_accuracy", paper.batch_statistics_accuracy);
    visit("note", paper.note);
  }
};

template <>
struct Fields<ArmRun> {
  template <typename Record, typename Visitor>
  static void visit(Record& run, const Visitor& visit) {
    visit("seed", run.seed);
    visit("folder", run.folder);
    visit.require(
        is_inside(run.folder), "folder",
        fmt::format("must be a path inside the folder of the results, got '{}'", printable(run.folder)));
    visit("steps_done", run.steps_done);
    visit("seconds", run.seconds);
    visit("finished", run.finished);
  }
};

template <>
struct Fields<Place> {
  template <typename Record, typename Visitor>
  static void visit(Record& place, const Visitor& visit) {
    visit("at", place.at);
    visit("text", place.text);
  }
};

template <>
struct Fields<Axis> {
  template <typename Record, typename Visitor>
  static void visit(Record& axis, const Visitor& visit) {
    visit("name", axis.name);
    visit("logarithmic", axis.logarithmic);
  }
};

template <>
struct Fields<Arm> {
  template <typename Record, typename Visitor>
  static void visit(Record& arm, const Visitor& visit) {
    visit("name", arm.name);
    visit("figure", arm.figure);
    visit("label", arm.label);
    visit("command", arm.command);
    visit("renorm", arm.renorm);
    visit("steps", arm.steps);
    visit("paper", arm.paper);
    visit("test_accuracy", arm.test_accuracy);
    visit("train_accuracy", arm.train_accuracy);
    visit("batch_statistics_accuracy", arm.batch_statistics_accuracy);
    visit("batch_statistics_sampler", arm.batch_statistics_sampler);
    visit.defaulted("others", arm.others);
    visit("extra_rows", arm.extra_rows);
    visit("test_images", arm.test_images);
    visit("x", arm.x);
    visit("y", arm.y);
    visit("series", arm.series);
    visit("steps_to_reference", arm.steps_to_reference);
    visit("curve", arm.curve);
    visit("training", arm.training);
    visit("runs", arm.runs);
  }
};

template <>
struct Fields<Figure> {
  template <typename Record, typename Visitor>
  static void visit(Record& figure, const Visitor& visit) {
    visit("id", figure.id);
    visit("title", figure.title);
    visit("caption", figure.caption);
    visit("in_paper", figure.in_paper);
    visit("data", figure.data);
    visit("model", figure.model);
    visit("reference", figure.reference);
    visit("x", figure.x);
    visit("y", figure.y);
  }
};

template <>
struct Fields<Difference> {
  template <typename Record, typename Visitor>
  static void visit(Record& difference, const Visitor& visit) {
    visit("mean", difference.mean);
    visit("half_width", difference.half_width);
    visit("welch", difference.welch);
  }
};

template <>
struct Fields<Claim> {
  template <typename Record, typename Visitor>
  static void visit(Record& claim, const Visitor& visit) {
    visit("text", claim.text);
    visit("verdict", claim.verdict);
    visit("evidence", claim.evidence);
    visit("in_paper", claim.in_paper);
    visit("difference", claim.difference);
  }
};

template <>
struct Fields<Results> {
  template <typename Record, typename Visitor>
  static void visit(Record& results, const Visitor& visit) {
    visit("name", results.name);
    visit("title", results.title);
    visit("measure", results.measure);
    visit("data", results.data);
    visit("model", results.model);
    visit("steps", results.steps);
    visit("seeds", results.seeds);
    visit("command", results.command);
    visit("versions", results.versions);
    visit("test_images", results.test_images);
    visit("finished", results.finished);
    visit("test", results.test);
    visit("figures", results.figures);
    visit("arms", results.arms);
    visit("claims", results.claims);
  }
};

namespace {

constexpr JsonFormat kFormat = {"results", 1, SIZE_MAX, UnknownKeys::kIgnore, 1};

}  // namespace

Measure measure_of(std::vector<double> values) {
  Measure measure;
  measure.values = std::move(values);
  if (measure.values.empty()) return measure;
  const auto count = static_cast<double>(measure.values.size());
  for (const double value : measure.values) measure.mean += value / count;
  double squares = 0.0;
  for (const double value : measure.values) squares += (value - measure.mean) * (value - measure.mean);
  if (measure.values.size() > 1) measure.spread = std::sqrt(squares / (count - 1.0));
  return measure;
}

std::string to_json(const Results& results) { return write_json(results, kFormat); }

Results parse_results(const std::string& text, const std::string& file) {
  return read_json<Results>(text, printable(file), kFormat);
}

}  // namespace renorm::record
