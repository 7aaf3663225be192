#include <fmt/format.h>

#include <cstdint>
#include <limits>

#include "base/errors.h"
#include "base/text.h"
#include "data/sampler.h"
#include "train/clip_spec.h"
#include "train/settings.h"

namespace renorm::train {
namespace {

constexpr int64_t kMostExamples = 1 << 20;
constexpr int64_t kMostPixels = 4096;
constexpr int64_t kMostSteps = 1'000'000'000'000;
constexpr size_t kLongestText = 4096;  // as long as a path may be
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What a number may be: from `least` to `greatest`, the ends themselves only if they are not open.
struct Range {
  double least;
  double greatest;
  bool open_below = false;
  bool open_above = false;

  bool holds(double value) const {
    return (open_below ? value > least : value >= least) &&
           (open_above ? value < greatest : value <= greatest);
  }
  std::string words() const {
    return fmt::format("from {}{} to {}{}", open_below ? "above " : "", shortest(least),
                       open_above ? "below " : "", shortest(greatest));
  }
};

constexpr Range kBelowOne = {0.0, 1.0, false, true};
constexpr Range kAboveZero = {0.0, 1.0, true, false};

// Config files and checkpoints are UTF-8, so nothing else can be kept.
void check_text(const std::string& flag, const std::string& text) {
  if (text.size() > kLongestText) {
    throw UsageError(
        fmt::format("{} must not be longer than {} bytes, got {}", flag, kLongestText, text.size()));
  }
  if (!is_utf8(text) || text.find('\0') != std::string::npos) {
    throw UsageError(fmt::format("{} must be UTF-8 text, got '{}'", flag, printable(text)));
  }
}

double number_within(const std::string& flag, const std::string& text, const Range& range) {
  double value = std::numeric_limits<double>::quiet_NaN();
  try {
    value = parse_number(text, flag, -kInfinity, kInfinity);
  } catch (const UsageError&) {  // said below, with the range in the setting's own words
  }
  if (!range.holds(value)) {
    throw UsageError(fmt::format("{} must be a number {}, got '{}'", flag, range.words(), printable(text)));
  }
  return value + 0.0;  // no negative zero, whose text reads back as another value in some formats
}

using Check = std::function<void(const std::string& text)>;

// A text whose own language `check` reads.
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
  return {name, group, Setting::Type::kText, "NAME", fmt::format(help, choice_help<Enum>()), set, get};
}

template <typename T>
Setting whole(std::string name, std::string group, T Config::*field, int64_t least, int64_t greatest,
              std::string help) {
  const auto set = [flag = "--" + name, field, least, greatest](Config& config, const std::string& given) {
    config.*field = static_cast<T>(parse_integer(given, flag, least, greatest));
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
  table.push_back(
      text("data", "Data", &C::data,
           "strokes[:OPTIONS], mnist:DIR, fashion-mnist:DIR, cifar10:DIR, cifar100:DIR or folder:DIR"));
  table.push_back(text("sampler", "Data", &C::sampler,
                       "what a minibatch is made of: iid, labels:LxK, labels:LxK:distinct or blocks:BxLxK",
                       sampler));
  table.push_back(toggle("split-pairs", "Data", &C::split_pairs,
                         "put the K images of a label into K different groups of the minibatch"));
  table.push_back(
      toggle("deal", "Data", &C::deal, "deal the images of a step round-robin over its minibatches"));
}

void add_step(std::vector<Setting>& table) {
  using C = Config;
  table.push_back(whole("workers", "Step", &C::workers, 1, kMostExamples, "minibatches in a step"));
  table.push_back(whole("minibatch", "Step", &C::minibatch, 0, kMostExamples,
                        "examples in a minibatch; 0: what the sampler makes, or 32"));
  table.push_back(
      whole("microbatch", "Step", &C::microbatch, 0, kMostExamples,
            "examples normalised together; 0: the whole minibatch, or one group for each image of a "
            "label with --split-pairs"));
  table.push_back(
      whole("chunk", "Step", &C::chunk, 0, kMostExamples,
            "most examples computed in one pass, which changes memory but not the result; 0: chosen"));
}

void add_pictures(std::vector<Setting>& table) {
  using C = Config;
  const std::string group = "Own images (folder:DIR)";
  table.push_back(
      number("val-fraction", group, &C::val_fraction, kBelowOne,
             "share of the training images that becomes the test split; 0: there is a folder val"));
  table.push_back(whole("image-size", group, &C::image_size, 0, kMostPixels,
                        "pixels a side of what the net is shown; 0: what the model is made for"));
  table.push_back(number("crop-area", group, &C::crop_area, kAboveZero,
                         "least share of a picture's area that a training crop takes"));
  table.push_back(number("flip", group, &C::flip, {0.0, 1.0}, "how often a training picture is mirrored"));
  table.push_back(number("jitter", group, &C::jitter, {0.0, 1.0},
                         "how far brightness, contrast and saturation of training pictures vary"));
  table.push_back(
      choice("on-bad-image", group, &C::on_bad_image, "what an image that cannot be read causes: {}"));
  table.push_back(whole("loader-threads", group, &C::loader_threads, 0, 1024,
                        "threads that decode images, which changes no result; 0: as --threads"));
}

void add_model_and_length(std::vector<Setting>& table) {
  using C = Config;
  const Check clip = [](const std::string& given) { parse_clip(given); };
  table.push_back(
      text("model", "Model", &C::model,
           "inception-v3[:aux], resnet18, resnet50, inception-small, resnet-small or convnet[:SPEC]; "
           "`renorm models` lists them"));
  table.push_back(choice("norm", "Model", &C::norm));
  table.push_back(toggle("norm-scale", "Model", &C::norm_scale,
                         "train the norms' weight, which is fixed at 1 otherwise"));
  table.push_back(
      number("norm-eps", "Model", &C::norm_eps, kAboveZero, "added to the variance inside the root"));
  table.push_back(number("norm-momentum", "Model", &C::norm_momentum, kAboveZero,
                         "how far a step moves the running statistics"));
  table.push_back(
      text("clip", "Model", &C::clip,
           "limits of r and d: paper, paper@STEPS, R,D or hold:H,r:R@S,d:D@S (H and S: steps, or % of "
           "the run)",
           clip));
  table.push_back(text("init", "Model", &C::init,
                       "start from the weights in this safetensors file: torchvision's or renorm's"));
  table.back().placeholder = "FILE";
  table.push_back(
      choice("dtype", "Model", &C::dtype, "of the activations: {}; parameters and averages stay float"));
  table.push_back(choice("memory-format", "Model", &C::memory_format));
  table.push_back(
      whole("steps", "Length", &C::steps, 0, kMostSteps, "steps of the run; 0: as --epochs says, or 2000"));
  table.push_back(number("epochs", "Length", &C::epochs, {0.0, 1e6},
                         "passes over the training set, instead of --steps; 0: as --steps says"));
}

void add_update(std::vector<Setting>& table) {
  using C = Config;
  const std::string group = "Optimisation";
  table.push_back(choice("optimizer", group, &C::optimizer));
  table.push_back(number("lr", group, &C::lr, {0.0, 1000.0}, "learning rate after the warm-up"));
  table.push_back(choice("lr-schedule", group, &C::lr_schedule));
  table.push_back(
      number("lr-final", group, &C::lr_final, {0.0, 1.0}, "learning rate at the end as a fraction of --lr"));
  table.push_back(
      whole("warmup", group, &C::warmup, 0, kMostSteps, "steps in which the learning rate rises"));
  table.push_back(
      number("momentum", group, &C::momentum, kBelowOne, "momentum of rmsprop-tf, rmsprop and sgd"));
  table.push_back(
      number("alpha", group, &C::alpha, kBelowOne, "decay of the mean square of rmsprop-tf and rmsprop"));
  table.push_back(number("beta1", group, &C::beta1, kBelowOne, "decay of the mean of adamw"));
  table.push_back(number("beta2", group, &C::beta2, kBelowOne, "decay of the mean square of adamw"));
  table.push_back(number("optimizer-eps", group, &C::optimizer_eps, kAboveZero,
                         "epsilon of rmsprop-tf, rmsprop and adamw"));
}

void add_regularisation(std::vector<Setting>& table) {
  using C = Config;
  const std::string group = "Optimisation";
  table.push_back(number("weight-decay", group, &C::weight_decay, {0.0, 10.0},
                         "weight decay; norms and biases are left alone"));
  table.push_back(number("label-smoothing", group, &C::label_smoothing, kBelowOne,
                         "share of the target spread over all classes"));
  table.push_back(number("clip-gradient", group, &C::clip_gradient, {0.0, 1e9},
                         "greatest norm of the gradient; 0: no limit"));
  table.push_back(number("ema-decay", group, &C::ema_decay, kBelowOne,
                         "decay of the averaged weights that evaluation uses; 0: none"));
}

void add_run(std::vector<Setting>& table) {
  using C = Config;
  table.push_back(whole("seed", "Run", &C::seed, 0, std::numeric_limits<int64_t>::max(),
                        "where all random numbers come from"));
  table.push_back(whole("threads", "Run", &C::threads, 0, 1024, "threads that compute; 0: one a CPU"));
  table.push_back(
      whole("log-every", "Run", &C::log_every, 1, kMostSteps, "steps between two records of metrics.jsonl"));
  table.push_back(whole("eval-every", "Run", &C::eval_every, 0, kMostSteps,
                        "steps between two evaluations; 0: ten evaluations a run"));
  table.push_back(whole("checkpoint-every", "Run", &C::checkpoint_every, 0, kMostSteps,
                        "steps between two checkpoints; 0: as --eval-every"));
  table.push_back(whole("keep", "Run", &C::keep, 1, 1'000'000, "newest checkpoints kept besides the best"));
}

}  // namespace

const std::vector<Setting>& settings() {
  static const std::vector<Setting> table = [] {
    std::vector<Setting> all;
    add_data(all);
    add_pictures(all);
    add_step(all);
    add_model_and_length(all);
    add_update(all);
    add_regularisation(all);
    add_run(all);
    return all;
  }();
  return table;
}

}  // namespace renorm::train
