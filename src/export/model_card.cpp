#include "export/model_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/errors.h"
#include "base/text.h"
#include "data/description.h"
#include "record/json.h"

namespace renorm::exporting {
namespace {

constexpr record::JsonFormat kFormat = {"a model card", 1, 64 << 20,  // a million classes with names
                                        record::UnknownKeys::kRefuse};
constexpr const char* kSafetensorsEnd = ".safetensors";
constexpr const char* kTorchScriptEnd = ".pt";
constexpr size_t kMaxSpec = 1 << 16;
constexpr size_t kMaxClasses = 1000000;
constexpr int64_t kMaxChannels = 65536;
// Limits of divisors, far outside of any meaningful value.
constexpr double kMin = 1e-30;
constexpr double kMax = 1e30;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

template <typename Visitor>
void require_count(const Visitor& visit, const char* key, size_t count, size_t min, size_t max,
                   const char* unit) {
  const std::string range = min == max ? fmt::format("{}", min) : fmt::format("from {} to {}", min, max);
  visit.require(count >= min && count <= max, key,
                fmt::format("must have {} {}, got {}", range, unit, count));
}

template <typename Visitor>
void require_one_of(const Visitor& visit, const char* key, const std::string& value,
                    const std::vector<std::string>& allowed) {
  visit.require(std::find(allowed.begin(), allowed.end(), value) != allowed.end(), key,
                fmt::format("must be one of {}, got '{}'", fmt::join(allowed, ", "), printable(value)));
}

}  // namespace
}  // namespace renorm::exporting

namespace renorm::record {

template <>
struct Fields<exporting::ModelCard::Norm> {
  template <typename Record, typename Visitor>
  static void visit(Record& norm, const Visitor& visit) {
    visit("kind", norm.kind);
    visit("scale", norm.scale);
    visit("eps", norm.eps, Limits{exporting::kMin, 1.0});
  }
};

template <>
struct Fields<exporting::ModelCard::Input> {
  template <typename Record, typename Visitor>
  static void visit(Record& input, const Visitor& visit) {
    const Limits<int64_t> side{1, data::kMaxImageSide};
    visit("channels", input.channels, Limits<int64_t>{1, exporting::kMaxChannels});
    const auto channels = static_cast<size_t>(input.channels);
    visit("height", input.height, side);
    visit("width", input.width, side);
    const int64_t values = input.channels * input.height * input.width;
    visit.require(
        values <= data::kMaxImageValues, "channels",
        fmt::format("must give images of at most {} values, got {}", data::kMaxImageValues, values));
    visit("mean", input.mean, Limits{-exporting::kMax, exporting::kMax});
    exporting::require_count(visit, "mean", input.mean.size(), channels, channels, "values");
    visit("std", input.std, Limits{exporting::kMin, exporting::kMax});
    exporting::require_count(visit, "std", input.std.size(), channels, channels, "values");
    visit("centre", input.centre, Limits{exporting::kMin, 1.0});
  }
};

template <>
struct Fields<exporting::ModelCard> {
  template <typename Record, typename Visitor>
  static void visit(Record& card, const Visitor& visit) {
    visit("renorm", card.renorm);
    visit("model", card.model);
    exporting::require_count(visit, "model", card.model.size(), 1, exporting::kMaxSpec, "characters");
    visit("folded", card.folded);
    visit("norm", card.norm);
    visit("weights", card.weights);
    exporting::require_one_of(visit, "weights", card.weights, {"averaged", "raw"});
    visit("step", card.step);
    visit("input", card.input);
    visit("classes", card.classes);
    exporting::require_count(visit, "classes", card.classes.size(), 1, exporting::kMaxClasses, "names");
  }
};

}  // namespace renorm::record

namespace renorm::exporting {

ModelFormat model_format(const std::string& file) {
  if (ends_with(file, kSafetensorsEnd)) return ModelFormat::kSafetensors;
  if (ends_with(file, kTorchScriptEnd)) return ModelFormat::kTorchScript;
  throw UsageError(fmt::format("the file of a model must end in {} (weights) or {} (TorchScript), got '{}'",
                               kSafetensorsEnd, kTorchScriptEnd, printable(file)));
}

std::string to_json(const ModelCard& card) { return record::write_json(card, kFormat); }

ModelCard parse_model_card(const std::string& text, const std::string& file) {
  return record::read_json<ModelCard>(text, printable(file), kFormat);
}

}  // namespace renorm::exporting
