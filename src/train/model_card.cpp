#include "train/model_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/text.h"
#include "record/json_fields.h"
#include "record/strict_json.h"

namespace renorm::record {

template <>
struct Fields<train::ModelCard::Norm> {
  template <typename Record, typename Visitor>
  static void visit(Record& norm, const Visitor& visit) {
    visit("kind", norm.kind);
    visit("scale", norm.scale);
    visit("eps", norm.eps);
  }
};

template <>
struct Fields<train::ModelCard::Input> {
  template <typename Record, typename Visitor>
  static void visit(Record& input, const Visitor& visit) {
    visit("channels", input.channels);
    visit("height", input.height);
    visit("width", input.width);
    visit("mean", input.mean);
    visit("std", input.std);
    visit("centre", input.centre);
  }
};

template <>
struct Fields<train::ModelCard> {
  template <typename Record, typename Visitor>
  static void visit(Record& card, const Visitor& visit) {
    visit("renorm", card.renorm);
    visit("model", card.model);
    visit("folded", card.folded);
    visit("norm", card.norm);
    visit("weights", card.weights);
    visit("step", card.step);
    visit("input", card.input);
    visit("classes", card.classes);
  }
};

}  // namespace renorm::record

namespace renorm::train {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kSafetensorsEnd = ".safetensors";
constexpr const char* kTorchScriptEnd = ".pt";
constexpr const char* kVersionKey = "format_version";
constexpr int64_t kFormatVersion = 1;
constexpr size_t kLongestText = 64 << 20;  // a million classes with names
constexpr size_t kLongestSpec = 1 << 16;
constexpr size_t kMostClasses = 1000000;
constexpr int64_t kMostPerSide = 65536;
// The limits of what is divided by, far outside of anything meant.
constexpr double kLeast = 1e-30;
constexpr double kGreatest = 1e30;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

ordered_json json_of(const ModelCard& card) {
  ordered_json object = {{kVersionKey, kFormatVersion}};
  record::Fields<ModelCard>::visit(card, record::FieldWriter(object));
  return object;
}

// A card that was read, and the file that the messages name.
class Checker {
 public:
  Checker(const ModelCard& card, const std::string& file) : card_(card), file_(file) {}

  void check() const {
    count("model", card_.model.size(), 1, kLongestSpec, "characters");
    one_of("norm.kind", card_.norm.kind, {"batchnorm", "renorm", "native"});
    within("norm.eps", card_.norm.eps, kLeast, 1.0);
    one_of("weights", card_.weights, {"averaged", "raw"});
    check_input();
    count("classes", card_.classes.size(), 1, kMostClasses, "names");
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(fmt::format("{}: {}", file_, what));
  }

  void within(const char* name, double value, double least, double greatest) const {
    if (value >= least && value <= greatest) return;
    refuse(fmt::format("'{}' must be from {} to {}, got {}", name, shortest(least), shortest(greatest),
                       shortest(value)));
  }

  void count(const char* name, size_t size, size_t least, size_t greatest, const char* unit) const {
    if (size >= least && size <= greatest) return;
    const std::string range =
        least == greatest ? fmt::format("{}", least) : fmt::format("from {} to {}", least, greatest);
    refuse(fmt::format("'{}' must have {} {}, got {}", name, range, unit, size));
  }

  void one_of(const char* name, const std::string& value, const std::vector<std::string>& allowed) const {
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
    refuse(fmt::format("'{}' must be one of {}, got '{}'", name, fmt::join(allowed, ", "), printable(value)));
  }

  void check_input() const {
    const ModelCard::Input& input = card_.input;
    within("input.channels", static_cast<double>(input.channels), 1, kMostPerSide);
    within("input.height", static_cast<double>(input.height), 1, kMostPerSide);
    within("input.width", static_cast<double>(input.width), 1, kMostPerSide);
    const auto channels = static_cast<size_t>(input.channels);
    count("input.mean", input.mean.size(), channels, channels, "values");
    count("input.std", input.std.size(), channels, channels, "values");
    for (const double mean : input.mean) within("input.mean", mean, -kGreatest, kGreatest);
    for (const double std : input.std) within("input.std", std, kLeast, kGreatest);
    within("input.centre", input.centre, kLeast, 1.0);
  }

  const ModelCard& card_;
  const std::string& file_;
};

// Refuses entries of `found` that are not in `known`, at every depth.
void check_names(const json& found, const ordered_json& known, const std::string& file) {
  for (const auto& [name, value] : found.items()) {
    const auto match = known.find(name);
    if (match == known.end()) {
      throw DataError(fmt::format("{}: there is no entry '{}' in a model card", file, printable(name)));
    }
    if (value.is_object()) check_names(value, *match, file);
  }
}

void check_version(const json& found, const std::string& file) {
  int64_t version = 0;
  record::FieldReader(found, file)(kVersionKey, version);
  if (version == kFormatVersion) return;
  throw DataError(fmt::format("{}: {} is {}, and this program knows {}; use the renorm that wrote it", file,
                              kVersionKey, version, kFormatVersion));
}

}  // namespace

ModelFormat model_format(const std::string& file) {
  if (ends_with(file, kSafetensorsEnd)) return ModelFormat::kSafetensors;
  if (ends_with(file, kTorchScriptEnd)) return ModelFormat::kTorchScript;
  throw UsageError(fmt::format("a model's file must end in {} (weights) or {} (TorchScript), got '{}'",
                               kSafetensorsEnd, kTorchScriptEnd, printable(file)));
}

std::string to_json(const ModelCard& card) {
  return json_of(card).dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ModelCard parse_model_card(const std::string& text, const std::string& file) {
  const std::string safe_file = printable(file);
  if (text.size() > kLongestText) {
    throw DataError(
        fmt::format("{}: a model card may have {} bytes, got {}", safe_file, kLongestText, text.size()));
  }
  const json found = record::parse_json(text, safe_file);
  if (!found.is_object()) throw DataError(fmt::format("{}: a model card must be an object", safe_file));
  check_version(found, safe_file);
  ModelCard card;
  record::Fields<ModelCard>::visit(card, record::FieldReader(found, safe_file));
  Checker(card, safe_file).check();
  check_names(found, json_of(card), safe_file);
  return card;
}

}  // namespace renorm::train
