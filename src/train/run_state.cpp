#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "base/text.h"
#include "record/strict_json.h"
#include "train/checkpoint.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormatVersion = 2;
constexpr size_t kLongestFile = 64 << 20;  // a million classes with names
constexpr int64_t kGreatest = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostPerSide = 65536;
constexpr double kMostSeconds = 1e12;

const std::set<std::string>& entries() {
  static const std::set<std::string> names = {
      "format_version", "step",          "config",  "sampler",    "rng",  "versions",      "best",
      "metrics_bytes",  "summary_bytes", "seconds", "parameters", "data", "skipped_images"};
  return names;
}

Json typed_value(const Setting& setting, const Config& config) {
  const std::string text = setting.get(config);
  switch (setting.type) {
    case Setting::Type::kText:
      return text;
    case Setting::Type::kSwitch:
      return text == "true";
    case Setting::Type::kInteger:
      return parse_integer(text, setting.name, 0, kGreatest);
    case Setting::Type::kNumber:
      break;
  }
  const double infinity = std::numeric_limits<double>::infinity();
  return parse_number(text, setting.name, -infinity, infinity);
}

Json parse_state(const std::string& text, const std::string& file) {
  if (text.size() > kLongestFile) {
    throw DataError(
        fmt::format("{}: a state.json may have {} bytes, got {}", file, kLongestFile, text.size()));
  }
  return record::parse_json(text, file);
}

// A value of the file and where it is: "best.step".
class Entry {
 public:
  Entry(const Json& value, const std::string& file, std::string path)
      : value_(value), file_(file), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw DataError(fmt::format("{}: {}{}{}", file_, printable(path_), path_.empty() ? "" : " ", what));
  }
  const Json& value() const { return value_; }

  Entry member(const std::string& name) const {
    const auto found = as_object().find(name);
    if (found == value_.end()) refuse(fmt::format("must have an entry '{}'", name));
    return {*found, file_, path_.empty() ? name : path_ + "." + name};
  }
  Entry element(size_t index) const { return {value_[index], file_, fmt::format("{}[{}]", path_, index)}; }
  const Json& as_object() const {
    if (!value_.is_object()) refuse(fmt::format("must be an object, got {}", value_.type_name()));
    return value_;
  }
  std::string as_text() const {
    if (!value_.is_string()) refuse(fmt::format("must be a text, got {}", value_.type_name()));
    return value_.get<std::string>();
  }
  int64_t as_integer(int64_t least, int64_t greatest = kGreatest) const {
    const bool fits = value_.is_number_integer() &&
                      (!value_.is_number_unsigned() || value_.get<uint64_t>() <= uint64_t{kGreatest});
    if (!fits || value_.get<int64_t>() < least || value_.get<int64_t>() > greatest) {
      refuse(fmt::format("must be a whole number from {} to {}", least, greatest));
    }
    return value_.get<int64_t>();
  }
  double as_number(double least, double greatest) const {
    const double number = value_.is_number() ? value_.get<double>() : std::nan("");
    if (!(number >= least && number <= greatest)) {
      refuse(fmt::format("must be a number from {} to {}", shortest(least), shortest(greatest)));
    }
    return number + 0.0;  // no negative zero
  }

 private:
  const Json& value_;
  const std::string& file_;
  std::string path_;
};

std::string text_of(const Setting& setting, const Entry& entry) {
  switch (setting.type) {
    case Setting::Type::kText:
      return entry.as_text();
    case Setting::Type::kSwitch:
      if (!entry.value().is_boolean()) entry.refuse("must be true or false");
      return entry.value().get<bool>() ? "true" : "false";
    case Setting::Type::kInteger:
      return fmt::format("{}", entry.as_integer(0));
    case Setting::Type::kNumber:
      break;
  }
  const double greatest = std::numeric_limits<double>::max();
  return shortest(entry.as_number(-greatest, greatest));
}

Config parse_config(const Entry& entry) {
  Config config;
  try {
    for (const auto& [name, value] : entry.as_object().items()) {
      const Setting& setting = find_setting(name);
      setting.set(config, text_of(setting, entry.member(name)));
    }
    check(config);
  } catch (const UsageError& error) {
    entry.refuse(fmt::format("is not a config of this version: {}", error.what()));
  }
  return config;
}

void parse_best(const Entry& entry, RunState* state) {
  if (entry.value().is_null()) return;
  state->best_accuracy = entry.member("accuracy").as_number(0.0, 100.0);
  state->best_step = entry.member("step").as_integer(0, state->step);
}

Json to_json(const data::Description& data) {
  return {{"spec", data.spec},     {"classes", data.classes}, {"channels", data.channels},
          {"height", data.height}, {"width", data.width},     {"mean", data.mean},
          {"std", data.std},       {"centre", data.centre},   {"fingerprint", data.fingerprint}};
}

template <typename T, typename Read>
std::vector<T> list_of(const Entry& entry, int64_t size, Read&& read) {
  if (!entry.value().is_array())
    entry.refuse(fmt::format("must be a list, got {}", entry.value().type_name()));
  if (size > 0 && static_cast<int64_t>(entry.value().size()) != size) {
    entry.refuse(fmt::format("must have {} values, got {}", size, entry.value().size()));
  }
  std::vector<T> list;
  for (size_t i = 0; i < entry.value().size(); ++i) list.push_back(read(entry.element(i)));
  return list;
}

data::Description parse_data(const Entry& entry) {
  const double greatest = std::numeric_limits<double>::max();
  const double least = std::numeric_limits<double>::min();
  data::Description data;
  data.spec = entry.member("spec").as_text();
  data.classes = list_of<std::string>(entry.member("classes"), 0, [](const Entry& e) { return e.as_text(); });
  if (data.classes.empty()) entry.refuse("must have classes");
  data.channels = entry.member("channels").as_integer(1, kMostPerSide);
  data.height = entry.member("height").as_integer(1, kMostPerSide);
  data.width = entry.member("width").as_integer(1, kMostPerSide);
  data.mean = list_of<double>(entry.member("mean"), data.channels,
                              [&](const Entry& e) { return e.as_number(-greatest, greatest); });
  data.std = list_of<double>(entry.member("std"), data.channels,
                             [&](const Entry& e) { return e.as_number(least, greatest); });
  data.centre = entry.member("centre").as_number(least, 1.0);
  data.fingerprint = entry.member("fingerprint").as_text();
  return data;
}

// What is said more than once must be said the same way.
void check_agreement(const Entry& root, const RunState& state) {
  const auto seed = static_cast<int64_t>(state.config.seed);
  if (root.member("sampler").member("seed").as_integer(0) != seed ||
      root.member("rng").member("seed").as_integer(0) != seed) {
    root.refuse("sampler.seed, rng.seed and config.seed must be the same");
  }
  if (root.member("sampler").member("step").as_integer(0) != state.step) {
    root.refuse("sampler.step and step must be the same");
  }
}

}  // namespace

std::string to_json(const RunState& state) {
  Json config = Json::object();
  for (const Setting& setting : settings()) config[setting.name] = typed_value(setting, state.config);
  Json best = nullptr;
  if (state.best_step >= 0) best = {{"accuracy", state.best_accuracy}, {"step", state.best_step}};
  const Json json = {{"format_version", kFormatVersion},
                     {"step", state.step},
                     {"config", std::move(config)},
                     {"sampler", {{"seed", state.config.seed}, {"step", state.step}}},
                     {"rng", {{"seed", state.config.seed}}},
                     {"versions", state.versions},
                     {"best", std::move(best)},
                     {"metrics_bytes", state.metrics_bytes},
                     {"summary_bytes", state.summary_bytes},
                     {"seconds", state.seconds},
                     {"parameters", state.parameters},
                     {"data", to_json(state.data)},
                     {"skipped_images", state.skipped_images}};
  // Names of classes are names of folders, which may be any bytes.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunState parse_run_state(const std::string& text, const std::string& file) {
  const std::string safe_file = printable(file);
  const Json json = parse_state(text, safe_file);
  const Entry root(json, safe_file, "");
  const int64_t version = root.member("format_version").as_integer(1);
  if (version < kFormatVersion) {
    root.refuse(
        fmt::format("format_version is {}, and this program reads {}; use the renorm that wrote it, or "
                    "start the run again",
                    version, kFormatVersion));
  }
  if (version > kFormatVersion) {
    root.refuse(fmt::format("format_version is {}, and this program knows {} at most; use a newer renorm",
                            version, kFormatVersion));
  }
  for (const auto& [name, value] : json.items()) {
    if (entries().count(name) == 0)
      root.refuse(fmt::format("there is no entry '{}' in a state.json", printable(name)));
  }
  RunState state;
  state.step = root.member("step").as_integer(0);
  state.config = parse_config(root.member("config"));
  const Entry versions = root.member("versions");
  for (const auto& [name, value] : versions.as_object().items()) {
    state.versions[name] = versions.member(name).as_text();
  }
  parse_best(root.member("best"), &state);
  state.metrics_bytes = root.member("metrics_bytes").as_integer(0);
  state.summary_bytes = root.member("summary_bytes").as_integer(0);
  state.seconds = root.member("seconds").as_number(0.0, kMostSeconds);
  state.parameters = root.member("parameters").as_integer(0);
  state.data = parse_data(root.member("data"));
  state.skipped_images = root.member("skipped_images").as_integer(0);
  check_agreement(root, state);
  return state;
}

}  // namespace renorm::train
