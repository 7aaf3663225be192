#include "record/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "record/json.h"

namespace renorm::record {
namespace {

constexpr const char* kStepKind = "step";
constexpr const char* kEvaluationKind = "evaluation";

constexpr JsonFormat kLine = {"a record", 0, SIZE_MAX, UnknownKeys::kIgnore, -1};

void read_line(const std::string& line, const std::string& where, Metrics* metrics) {
  const nlohmann::json object = parse_object(line, where, kLine);
  const FieldReader reader(object, where, kLine.unknown);
  std::string kind;
  reader("kind", kind);
  if (kind == kStepKind) {
    reader.read_all(metrics->steps.emplace_back());
  } else if (kind == kEvaluationKind) {
    reader.read_all(metrics->evaluations.emplace_back());
  } else {
    throw DataError(where + ": " + unknown_name("kind of record", kind, {kStepKind, kEvaluationKind}));
  }
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

// The columns of summary.csv in their order.
std::vector<std::pair<std::string, std::string>> summary_columns(const EvaluationRecord& evaluation,
                                                                 const StepRecord& step) {
  return {
      {"step", fmt::format("{}", evaluation.step)},
      {"epoch", shortest(evaluation.epoch)},
      {"split", csv_text(evaluation.split)},
      {"images", fmt::format("{}", evaluation.images)},
      {"accuracy", shortest(evaluation.averaged.accuracy)},
      {"loss", shortest(evaluation.averaged.loss)},
      {"raw_accuracy", shortest(evaluation.raw.accuracy)},
      {"raw_loss", shortest(evaluation.raw.loss)},
      {"train_accuracy", shortest(step.accuracy)},
      {"train_loss", shortest(step.loss)},
      {"learning_rate", shortest(step.learning_rate)},
      {"gradient_norm", shortest(step.gradient_norm)},
      {"r_max", shortest(step.r_max)},
      {"d_max", shortest(step.d_max)},
      {"r_clipped_above", shortest(step.r_clipped_above)},
      {"r_clipped_below", shortest(step.r_clipped_below)},
      {"d_clipped", shortest(step.d_clipped)},
      {"images_per_second", shortest(step.images_per_second)},
      {"seconds", shortest(evaluation.seconds)},
  };
}

}  // namespace

std::optional<std::string> Metrics::run() const {
  const bool first_is_step = !steps.empty() && steps.front().run;
  if (first_is_step) return steps.front().run;
  return evaluations.empty() ? std::nullopt : evaluations.front().run;
}

std::string to_json_line(const StepRecord& record) { return write_json(record, kLine); }

std::string to_json_line(const EvaluationRecord& record) { return write_json(record, kLine); }

Metrics parse_metrics(const std::string& text, const std::string& file) {
  Metrics metrics;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end == std::string::npos ? end : end - begin);
    // A record that was cut anywhere is no JSON; a machine that lost power may have left zeros.
    const bool whole =
        end != std::string::npos || (line.find('\0') == std::string::npos && nlohmann::json::accept(line));
    if (!whole) break;
    read_line(line, fmt::format("{}:{}", printable(file), ++number), &metrics);
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return metrics;
}

std::string summary_csv_header() {
  std::vector<std::string> names;
  for (const auto& column : summary_columns({}, {})) names.push_back(column.first);
  return fmt::format("{}", fmt::join(names, ","));
}

std::string summary_csv_row(const EvaluationRecord& evaluation, const StepRecord& step) {
  std::vector<std::string> values;
  for (const auto& column : summary_columns(evaluation, step)) values.push_back(column.second);
  return fmt::format("{}", fmt::join(values, ","));
}

}  // namespace renorm::record
