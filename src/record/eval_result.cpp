#include "record/eval_result.h"

#include "base/text.h"
#include "record/json.h"

namespace renorm::record {

template <>
struct Fields<ClassResult> {
  template <typename Record, typename Visitor>
  static void visit(Record& result, const Visitor& visit) {
    visit("name", result.name);
    visit("images", result.images);
    visit("correct", result.correct);
    visit("accuracy", result.accuracy);
  }
};

template <>
struct Fields<EvalResult> {
  template <typename Record, typename Visitor>
  static void visit(Record& result, const Visitor& visit) {
    visit("run", result.run);
    visit("checkpoint", result.checkpoint);
    visit("step", result.step);
    visit("data", result.data);
    visit("split", result.split);
    visit("images", result.images);
    visit.defaulted("skipped_images", result.skipped_images);
    visit("accuracy", result.averaged.accuracy);
    visit("loss", result.averaged.loss);
    visit("raw_accuracy", result.raw.accuracy);
    visit("raw_loss", result.raw.loss);
    visit("batch_statistics", result.batch_statistics);
    visit.nullable("sampler", result.sampler);
    visit("extra_rows", result.extra_rows);
    visit("per_class", result.per_class);
  }
};

namespace {

constexpr JsonFormat kFormat = {"an evaluation"};

}  // namespace

std::string to_json(const EvalResult& result) { return write_json(result, kFormat); }

EvalResult parse_eval_result(const std::string& text, const std::string& file) {
  return read_json<EvalResult>(text, printable(file), kFormat);
}

}  // namespace renorm::record
