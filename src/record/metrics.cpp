#include "record/metrics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/names.h"
#include "base/text.h"
#include "record/strict_json.h"

namespace renorm::record {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// The fields of each record with their keys, in the order of the file: writing and reading both go through
// these lists. A visitor is called as visit(key, field).
template <typename Record, typename Visitor>
void visit_summary(Record& summary, const Visitor& visit) {
  visit("mean", summary.mean);
  visit("std", summary.std);
  visit("min", summary.min);
  visit("max", summary.max);
}

template <typename Record, typename Visitor>
void visit_layer(Record& layer, const Visitor& visit) {
  visit("name", layer.name);
  visit("r_clipped_above", layer.r_clipped_above);
  visit("r_clipped_below", layer.r_clipped_below);
  visit("d_clipped", layer.d_clipped);
  visit("r", layer.r);
  visit("d", layer.d);
}

template <typename Record, typename Visitor>
void visit_step(Record& record, const Visitor& visit) {
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
  visit("layers", record.layers);
}

template <typename Record, typename Visitor>
void visit_evaluation(Record& record, const Visitor& visit) {
  visit("step", record.step);
  visit("epoch", record.epoch);
  visit("split", record.split);
  visit("images", record.images);
  visit("accuracy", record.averaged.accuracy);
  visit("loss", record.averaged.loss);
  visit("raw_accuracy", record.raw.accuracy);
  visit("raw_loss", record.raw.loss);
  visit("seconds", record.seconds);
}

struct Writer {
  ordered_json& object;

  template <typename Plain>
  void operator()(const char* key, const Plain& value) const {
    object[key] = value;
  }
  void operator()(const char* key, const Summary& value) const { visit_summary(value, Writer{object[key]}); }
  void operator()(const char* key, const std::vector<LayerClips>& value) const {
    ordered_json& layers = object[key] = ordered_json::array();
    for (const LayerClips& layer : value) visit_layer(layer, Writer{layers.emplace_back()});
  }
};

std::string to_line(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// `path` leads to the object inside the line: "layers[3].r.".
struct Reader {
  const json& object;
  const std::string& where;
  std::string path;

  [[noreturn]] void refuse(const char* key, const char* expected, const json& found) const {
    throw DataError(fmt::format("{}: '{}{}' must be {}, got {}", where, path, key, expected,
                                printable(found.dump(-1, ' ', true, json::error_handler_t::replace))));
  }
  const json& at(const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) throw DataError(fmt::format("{}: '{}{}' is missing", where, path, key));
    return *found;
  }

  void operator()(const char* key, double& value) const {
    const json& found = at(key);
    if (!found.is_number() && !found.is_null()) refuse(key, "a number or null", found);
    value = found.is_null() ? std::numeric_limits<double>::quiet_NaN() : found.get<double>();
  }
  void operator()(const char* key, int64_t& value) const {
    const json& found = at(key);
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (!found.is_number_unsigned() || found.get<uint64_t>() > kMost) {
      refuse(key, "a whole number of at least 0", found);
    }
    value = found.get<int64_t>();
  }
  void operator()(const char* key, std::string& value) const {
    const json& found = at(key);
    if (!found.is_string()) refuse(key, "a string", found);
    value = found.get<std::string>();
  }
  void operator()(const char* key, Summary& value) const {
    const json& found = at(key);
    if (!found.is_object()) refuse(key, "an object", found);
    visit_summary(value, Reader{found, where, path + key + "."});
  }
  void operator()(const char* key, std::vector<LayerClips>& value) const {
    const json& found = at(key);
    if (!found.is_array()) refuse(key, "an array", found);
    for (const json& layer : found) {
      if (!layer.is_object()) refuse(key, "an array of objects", found);
      const std::string inside = fmt::format("{}{}[{}].", path, key, value.size());
      visit_layer(value.emplace_back(), Reader{layer, where, inside});
    }
  }
};

void read_line(const std::string& line, const std::string& where, Metrics* metrics) {
  const json object = parse_json(line, where);
  if (!object.is_object()) throw DataError(fmt::format("{}: a record must be a JSON object", where));
  const Reader reader{object, where, ""};
  std::string kind;
  reader("kind", kind);
  if (kind == "step") {
    visit_step(metrics->steps.emplace_back(), reader);
  } else if (kind == "evaluation") {
    visit_evaluation(metrics->evaluations.emplace_back(), reader);
  } else {
    throw DataError(fmt::format("{}: there is no kind of record '{}'{}", where, printable(kind),
                                name_hint(kind, {"step", "evaluation"})));
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

std::string to_json_line(const StepRecord& record) {
  ordered_json object = {{"kind", "step"}};
  visit_step(record, Writer{object});
  return to_line(object);
}

std::string to_json_line(const EvaluationRecord& record) {
  ordered_json object = {{"kind", "evaluation"}};
  visit_evaluation(record, Writer{object});
  return to_line(object);
}

Metrics parse_metrics(const std::string& text, const std::string& file) {
  Metrics metrics;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end == std::string::npos ? end : end - begin);
    // A record that was cut anywhere is no JSON; a machine that lost power may have left zeros.
    const bool whole =
        end != std::string::npos || (line.find('\0') == std::string::npos && json::accept(line));
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
