#include "train/run_state.h"

#include <fmt/format.h>

#include <limits>
#include <optional>

#include "base/errors.h"
#include "base/text.h"
#include "record/json.h"
#include "train/run_id.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

constexpr record::JsonFormat kFormat = {"a state.json", 2, 64 << 20,  // a million classes with names
                                        record::UnknownKeys::kRefuse};
constexpr double kMaxNumber = std::numeric_limits<double>::max();
constexpr double kMinPositive = std::numeric_limits<double>::min();
constexpr int64_t kMaxChannels = 65536;
constexpr double kMaxSeconds = 1e12;

struct Best {
  double accuracy = 0.0;
  int64_t step = 0;
};

// Samplers and random numbers are pure functions of seed and step.
struct SamplerState {
  uint64_t seed = 0;
  int64_t step = 0;
};
struct RandomState {
  uint64_t seed = 0;
};

// Writes or reads one setting as a value of its type. A file without it is older than the setting.
template <typename Type, typename Record, typename Visitor, typename... Limit>
void visit_value(const Setting& setting, Type value, Record& config, const Visitor& visit,
                 const Limit&... limits) {
  visit.defaulted(setting.name, value, limits...);
  if constexpr (Visitor::kReads) setting.set(config, fmt::format("{}", value));
}

template <typename Record, typename Visitor>
void visit_setting(const Setting& setting, Record& config, const Visitor& visit) {
  const std::string text = setting.get(config);
  switch (setting.type) {
    case Setting::Type::kText:
      return visit_value(setting, text, config, visit);
    case Setting::Type::kSwitch:
      return visit_value(setting, text == "true", config, visit);
    case Setting::Type::kInteger:
      return visit_value(setting, parse_integer(text, setting.name, 0, std::numeric_limits<int64_t>::max()),
                         config, visit);
    case Setting::Type::kNumber:
      return visit_value(setting, parse_number(text, setting.name, -kMaxNumber, kMaxNumber), config, visit,
                         record::Limits{-kMaxNumber, kMaxNumber});
  }
}

}  // namespace
}  // namespace renorm::train

namespace renorm::record {

template <>
struct Fields<train::Config> {
  template <typename Record, typename Visitor>
  static void visit(Record& config, const Visitor& visit) {
    for (const train::Setting& setting : train::settings()) train::visit_setting(setting, config, visit);
  }
};

template <>
struct Fields<train::SamplerState> {
  template <typename Record, typename Visitor>
  static void visit(Record& sampler, const Visitor& visit) {
    visit("seed", sampler.seed);
    visit("step", sampler.step);
  }
};

template <>
struct Fields<train::RandomState> {
  template <typename Record, typename Visitor>
  static void visit(Record& random, const Visitor& visit) {
    visit("seed", random.seed);
  }
};

template <>
struct Fields<train::Best> {
  template <typename Record, typename Visitor>
  static void visit(Record& best, const Visitor& visit) {
    visit("accuracy", best.accuracy, Limits{0.0, 100.0});
    visit("step", best.step);
  }
};

template <>
struct Fields<data::Description> {
  template <typename Record, typename Visitor>
  static void visit(Record& data, const Visitor& visit) {
    const Limits<int64_t> side{1, data::kMaxImageSide};
    visit("spec", data.spec);
    visit("classes", data.classes);
    visit.require(!data.classes.empty(), "classes", "must not be empty");
    visit("channels", data.channels, Limits<int64_t>{1, train::kMaxChannels});
    visit("height", data.height, side);
    visit("width", data.width, side);
    const int64_t values = data.channels * data.height * data.width;
    visit.require(
        values <= data::kMaxImageValues, "channels",
        fmt::format("must give images of at most {} values, got {}", data::kMaxImageValues, values));
    visit("mean", data.mean, Limits{-train::kMaxNumber, train::kMaxNumber});
    visit("std", data.std, Limits{train::kMinPositive, train::kMaxNumber});
    for (const auto& [name, size] :
         {std::pair("mean", data.mean.size()), std::pair("std", data.std.size())}) {
      visit.require(static_cast<int64_t>(size) == data.channels, name,
                    fmt::format("must have {} values, got {}", data.channels, size));
    }
    visit("centre", data.centre, Limits{train::kMinPositive, 1.0});
    visit("fingerprint", data.fingerprint);
  }
};

template <>
struct Fields<train::RunState> {
  template <typename Record, typename Visitor>
  static void visit(Record& state, const Visitor& visit) {
    visit("run", state.run);
    visit.require(!state.run || train::is_run_id(*state.run), "run", "must be 16 hexadecimal digits");
    visit("step", state.step);
    visit("config", state.config);
    train::SamplerState sampler = {state.config.seed, state.step};
    visit("sampler", sampler);
    visit.require(sampler.seed == state.config.seed, "sampler.seed", "must be the same as 'config.seed'");
    visit.require(sampler.step == state.step, "sampler.step", "must be the same as 'step'");
    train::RandomState random = {state.config.seed};
    visit("rng", random);
    visit.require(random.seed == state.config.seed, "rng.seed", "must be the same as 'config.seed'");
    visit("versions", state.versions);
    std::optional<train::Best> best;
    if (state.best_step >= 0) best = {state.best_accuracy, state.best_step};
    visit.nullable("best", best);
    visit.require(!best || best->step <= state.step, "best.step",
                  fmt::format("must be a whole number from 0 to {}", state.step));
    if constexpr (Visitor::kReads) {
      if (best) state.best_accuracy = best->accuracy;
      if (best) state.best_step = best->step;
    }
    visit("metrics_bytes", state.metrics_bytes);
    visit("summary_bytes", state.summary_bytes);
    visit("seconds", state.seconds, Limits{0.0, train::kMaxSeconds});
    visit("parameters", state.parameters);
    visit("data", state.data);
    visit("skipped_images", state.skipped_images);
    visit("unevaluated", state.unevaluated);
    visit("last_evaluation", state.last_evaluation);
  }
};

}  // namespace renorm::record

namespace renorm::train {

std::string to_json(const RunState& state) { return record::write_json(state, kFormat); }

RunState parse_run_state(const std::string& text, const std::string& file) {
  const std::string where = printable(file);
  try {
    RunState state = record::read_json<RunState>(text, where, kFormat);
    check(state.config);
    return state;
  } catch (const UsageError& error) {
    throw DataError(fmt::format("{}: 'config' is not valid in this version: {}", where, error.what()));
  }
}

}  // namespace renorm::train
