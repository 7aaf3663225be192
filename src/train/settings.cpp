#include "train/settings.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <set>

#include "base/errors.h"
#include "base/text.h"
#include "data/dataset_kinds.h"
#include "data/description.h"
#include "data/sampler.h"
#include "train/clip_spec.h"

namespace renorm::train {
namespace {

constexpr int64_t kMaxExamples = 1 << 20;
constexpr int64_t kMaxSteps = 1'000'000'000'000;
constexpr size_t kMaxTextBytes = 4096;  // as for a path
constexpr double kMaxNormBias = 100.0;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The values that a number may have: from `min` to `max`, excluding open ends.
struct Range {
  double min;
  double max;
  bool open_below = false;
  bool open_above = false;

  bool holds(double value) const {
    return (open_below ? value > min : value >= min) && (open_above ? value < max : value <= max);
  }
  std::string words() const {
    return fmt::format("from {}{} to {}{}", open_below ? "above " : "", shortest(min),
                       open_above ? "below " : "", shortest(max));
  }
};

constexpr Range kBelowOne = {0.0, 1.0, false, true};
constexpr Range kAboveZero = {0.0, 1.0, true, false};

// Config files and checkpoints are UTF-8, so other bytes cannot be stored.
void check_text(const std::string& flag, const std::string& text) {
  if (text.size() > kMaxTextBytes) {
    throw UsageError(
        fmt::format("{} must not be longer than {} bytes, got {}", flag, kMaxTextBytes, text.size()));
  }
  if (!is_utf8(text) || text.find('\0') != std::string::npos) {
    throw UsageError(fmt::format("{} must be UTF-8 text, got '{}'", flag, printable(text)));
  }
}

double number_within(const std::string& flag, const std::string& text, const Range& range) {
  double value = std::numeric_limits<double>::quiet_NaN();
  try {
    value = parse_number(text, flag, -kInfinity, kInfinity);
  } catch (const UsageError&) {  // reported below, with the range of the setting
  }
  if (!range.holds(value)) {
    throw UsageError(fmt::format("{} must be a number {}, got '{}'", flag, range.words(), printable(text)));
  }
  return value + 0.0;  // no negative zero, whose text reads back as another value in some formats
}

using Check = std::function<void(const std::string& text)>;

// A text that `check` parses.
Setting text(std::string name, std::string group, std::string Config::*field, std::string help,
             Check check = nullptr) {
  const std::string flag = "--" + name;
  const auto set = [flag, field, check](Config& config, const std::string& given) {
    const bool may_be_empty = (Config().*field).empty();
    if (given.empty() && !may_be_empty) throw UsageError(fmt::format("{} must not be empty", flag));
    check_text(flag, given);
    try {
      if (check) check(given);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}", flag, error.what()));
    }
    config.*field = given;
  };
  return {
      name, group, Setting::Type::kText, "SPEC", help, set, [field](const Config& c) { return c.*field; }};
}

// "{}" in `help` becomes the list of names.
template <typename Enum>
Setting choice(std::string name, std::string group, Enum Config::*field, const std::string& help = "{}") {
  const auto set = [field](Config& config, const std::string& given) {
    config.*field = parse_choice<Enum>(given);
  };
  const auto get = [field](const Config& config) { return name_of(config.*field); };
  const std::string text = fmt::format(fmt::runtime(help), choice_help<Enum>());
  return {name, group, Setting::Type::kText, "NAME", text, set, get};
}

template <typename T>
Setting whole(std::string name, std::string group, T Config::*field, int64_t min, int64_t max,
              std::string help) {
  const auto set = [flag = "--" + name, field, min, max](Config& config, const std::string& given) {
    config.*field = static_cast<T>(parse_integer(given, flag, min, max));
  };
  const auto get = [field](const Config& config) { return fmt::format("{}", config.*field); };
  return {name, group, Setting::Type::kInteger, "N", help, set, get};
}

Setting number(std::string name, std::string group, double Config::*field, Range range, std::string help) {
  const auto set = [flag = "--" + name, field, range](Config& config, const std::string& given) {
    config.*field = number_within(flag, given, range);
  };
  const auto get = [field](const Config& config) { return shortest(config.*field); };
  return {name, group, Setting::Type::kNumber, "X", help, set, get};
}

Setting toggle(std::string name, std::string group, bool Config::*field, std::string help) {
  const auto set = [flag = "--" + name, field](Config& config, const std::string& given) {
    if (given != "true" && given != "false") {
      throw UsageError(fmt::format("{} must be true or false, got '{}'", flag, printable(given)));
    }
    config.*field = given == "true";
  };
  const auto get = [field](const Config& config) { return config.*field ? "true" : "false"; };
  return {name, group, Setting::Type::kSwitch, "", help, set, get};
}

void add_data(std::vector<Setting>& table) {
  using C = Config;
  const Check sampler = [](const std::string& given) { data::parse_sampler(given); };
  table.push_back(text("data", "Data", &C::data, data::dataset_forms()));
  table.push_back(text("sampler", "Data", &C::sampler,
                       "contents of a minibatch: iid, labels:LxK, labels:LxK:distinct or blocks:BxLxK",
                       sampler));
  table.push_back(toggle("split-pairs", "Data", &C::split_pairs,
                         "put the K images of a label into K different groups of the minibatch"));
  table.push_back(
      toggle("deal", "Data", &C::deal, "deal the images of a step round-robin over its minibatches"));
}

void add_step(std::vector<Setting>& table) {
  using C = Config;
  table.push_back(whole("workers", "Step", &C::workers, 1, kMaxExamples, "minibatches per step"));
  table.push_back(whole("minibatch", "Step", &C::minibatch, 0, kMaxExamples,
                        "examples per minibatch; 0: the sampler's size, or 32"));
  table.push_back(
      whole("microbatch", "Step", &C::microbatch, 0, kMaxExamples,
            "examples normalized together; 0: the whole minibatch, or with --split-pairs one group per "
            "image of a label"));
  table.push_back(toggle("sync-norm", "Step", &C::sync_norm,
                         "normalize all images of a step together, over all workers and processes"));
  table.push_back(
      whole("chunk", "Step", &C::chunk, 0, kMaxExamples,
            "maximum of examples computed in one pass; changes memory, not the result; 0: automatic"));
}

void add_objective(std::vector<Setting>& table) {
  using C = Config;
  constexpr int64_t kMaxEmbedding = 4096;
  const std::string group = "Objective";
  table.push_back(choice("objective", group, &C::objective));
  table.push_back(whole("embedding", group, &C::embedding, 1, kMaxEmbedding,
                        "with --objective metric: values per image"));
  table.push_back(whole("unseen", group, &C::unseen, 0, kMaxExamples,
                        "with --objective metric: classes, the last ones, that are not trained on and whose "
                        "test images are evaluated; 0: half of all"));
}

void add_images(std::vector<Setting>& table) {
  using C = Config;
  const std::string group = "Own images (folder:DIR)";
  table.push_back(
      number("val-fraction", group, &C::val_fraction, kBelowOne,
             "share of the training images that becomes the test split; 0: there is a folder val"));
  table.push_back(whole("image-size", group, &C::image_size, 0, data::kMaxImageSide,
                        "pixels per side of the net's input; 0: the size the model is made for"));
  table.push_back(number("crop-area", group, &C::crop_area, kAboveZero,
                         "minimum share of an image's area that a training crop takes"));
  table.push_back(
      number("flip", group, &C::flip, {0.0, 1.0}, "probability that a training image is mirrored"));
  table.push_back(number("jitter", group, &C::jitter, {0.0, 1.0},
                         "range of brightness, contrast and saturation of training images"));
  table.push_back(
      choice("on-bad-image", group, &C::on_bad_image, "action for an image that cannot be read: {}"));
  table.push_back(whole("loader-threads", group, &C::loader_threads, 0, 1024,
                        "threads that decode images; changes no result; 0: as --threads"));
}

void add_model_and_length(std::vector<Setting>& table) {
  using C = Config;
  const Check clip = [](const std::string& given) { parse_clip(given); };
  table.push_back(
      text("model", "Model", &C::model,
           "inception-v3[:aux], resnet18, resnet50, inception-small, resnet-small, convnet[:SPEC], "
           "mlp[:WIDTHS] or lstm[:WIDTH]; "
           "`renorm models` lists them"));
  table.push_back(choice("norm", "Model", &C::norm));
  table.push_back(toggle("norm-scale", "Model", &C::norm_scale,
                         "train the weight of the norms; otherwise it is fixed at 1"));
  table.push_back(
      number("norm-eps", "Model", &C::norm_eps, kAboveZero, "epsilon added to the variance inside the root"));
  table.push_back(number("norm-momentum", "Model", &C::norm_momentum, kAboveZero,
                         "share of a step's statistics in the running statistics"));
  table.push_back(number("norm-bias", "Model", &C::norm_bias, {-kMaxNormBias, kMaxNormBias},
                         "initial bias of the norms of dense layers; below 0 their ReLUs start sparse"));
  table.push_back(
      text("clip", "Model", &C::clip,
           "limits of r and d: paper, paper@STEPS, R,D or hold:H,r:R@S,d:D@S (H and S: steps, or % of "
           "the run)",
           clip));
  table.push_back(text("init", "Model", &C::init,
                       "start from the weights in this safetensors file: torchvision's or renorm's"));
  table.back().placeholder = "FILE";
  table.push_back(
      choice("dtype", "Model", &C::dtype, "type of the activations: {}; parameters and averages stay float"));
  table.push_back(choice("memory-format", "Model", &C::memory_format));
  table.push_back(
      whole("steps", "Length", &C::steps, 0, kMaxSteps, "steps of the run; 0: from --epochs, or 2000"));
  table.push_back(number("epochs", "Length", &C::epochs, {0.0, 1e6},
                         "passes over the training set, instead of --steps; 0: from --steps"));
}

void add_update(std::vector<Setting>& table) {
  using C = Config;
  const std::string group = "Optimization";
  table.push_back(choice("optimizer", group, &C::optimizer));
  table.push_back(number("lr", group, &C::lr, {0.0, 1000.0}, "learning rate after the warm-up"));
  table.push_back(choice("lr-schedule", group, &C::lr_schedule));
  table.push_back(
      number("lr-final", group, &C::lr_final, {0.0, 1.0}, "learning rate at the end as a fraction of --lr"));
  table.push_back(whole("warmup", group, &C::warmup, 0, kMaxSteps, "steps in which the learning rate rises"));
  table.push_back(
      number("momentum", group, &C::momentum, kBelowOne, "momentum of rmsprop-tf, rmsprop and sgd"));
  table.push_back(
      number("alpha", group, &C::alpha, kBelowOne, "decay of the mean square of rmsprop-tf and rmsprop"));
  table.push_back(number("beta1", group, &C::beta1, kBelowOne, "decay of the mean of adamw"));
  table.push_back(number("beta2", group, &C::beta2, kBelowOne, "decay of the mean square of adamw"));
  table.push_back(number("optimizer-eps", group, &C::optimizer_eps, kAboveZero,
                         "epsilon of rmsprop-tf, rmsprop and adamw"));
}

void add_regularization(std::vector<Setting>& table) {
  using C = Config;
  const std::string group = "Optimization";
  table.push_back(number("weight-decay", group, &C::weight_decay, {0.0, 10.0},
                         "weight decay; norms and biases are exempt"));
  table.push_back(number("label-smoothing", group, &C::label_smoothing, kBelowOne,
                         "share of the target spread over all classes"));
  table.push_back(number("clip-gradient", group, &C::clip_gradient, {0.0, 1e9},
                         "maximum norm of the gradient; 0: no limit"));
  table.push_back(number("ema-decay", group, &C::ema_decay, kBelowOne,
                         "decay of the averaged weights that evaluation uses; 0: none"));
}

void add_run(std::vector<Setting>& table) {
  using C = Config;
  table.push_back(
      whole("seed", "Run", &C::seed, 0, std::numeric_limits<int64_t>::max(), "seed of all random numbers"));
  table.push_back(whole("threads", "Run", &C::threads, 0, 1024, "threads that compute; 0: one per CPU"));
  table.push_back(
      whole("log-every", "Run", &C::log_every, 1, kMaxSteps, "steps between two records of metrics.jsonl"));
  table.push_back(whole("eval-every", "Run", &C::eval_every, 0, kMaxSteps,
                        "steps between two evaluations; 0: ten evaluations per run"));
  table.push_back(whole("checkpoint-every", "Run", &C::checkpoint_every, 0, kMaxSteps,
                        "steps between two checkpoints; 0: as --eval-every"));
  table.push_back(whole("keep", "Run", &C::keep, 1, 1'000'000, "newest checkpoints kept besides the best"));
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> table = [] {
    std::vector<Setting> all;
    add_data(all);
    add_images(all);
    add_objective(all);
    add_step(all);
    add_model_and_length(all);
    add_update(all);
    add_regularization(all);
    add_run(all);
    return all;
  }();
  return table;
}

const Setting& find_setting(const std::string& name) {
  std::vector<std::string> names;
  for (const Setting& setting : settings()) {
    if (setting.name == name) return setting;
    names.push_back(setting.name);
  }
  const std::string nearest = nearest_name(name, names);
  throw UsageError(fmt::format(
      "unknown setting '{}'; {}", printable(name),
      nearest.empty() ? "`renorm train --help` lists them" : fmt::format("did you mean '{}'?", nearest)));
}

bool is_free_to_change(const std::string& name) {
  static const std::set<std::string> names = {"keep", "checkpoint-every", "loader-threads", "on-bad-image"};
  return names.count(name) > 0;
}

std::vector<std::string> differing(const Config& then, const Config& now) {
  std::vector<std::string> names;
  for (const Setting& setting : settings()) {
    if (is_free_to_change(setting.name)) continue;
    if (setting.get(then) != setting.get(now)) names.push_back(setting.name);
  }
  return names;
}

}  // namespace renorm::train
