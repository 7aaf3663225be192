// Experiments that the paper does not have: how much bias and how small groups each norm survives, and which
// settings of Batch Renorm matter.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "experiments/kinds.h"
#include "experiments/plans.h"

namespace renorm::experiments {
namespace {

constexpr std::array<Variant, 3> kNorms = {kBatchnorm, kRenorm, kGroupnorm};

// A point of the line of `variant`: the arm "FIGURE-NORM-TICK".
Arm point_of(const train::Config& config, const std::string& figure, const Variant& variant,
             const record::Place& x) {
  Arm arm = arm_of(config, figure, variant);
  arm.name += "-" + x.text;
  arm.label += ", " + x.text;
  arm.series = variant.label;
  arm.x = x;
  return arm;
}

record::Figure figure_over(const std::string& id, const std::string& title, const std::string& caption,
                           const record::Axis& x) {
  record::Figure figure;
  figure.id = id;
  figure.title = title;
  figure.caption = caption;
  figure.in_paper = false;
  figure.x = x;
  return figure;
}

ClaimPlan beyond(ClaimPlan claim) {
  claim.in_paper = false;
  return claim;
}

ExperimentKind kind_named(const std::string& name, const std::string& title, const std::string& summary,
                          int64_t full_seeds) {
  ExperimentKind kind;
  kind.name = name;
  kind.command = "renorm reproduce " + name;
  kind.title = title;
  kind.summary = summary;
  kind.sizes = {{name + "-quick", 1}, {name + "-full", full_seeds}};
  return kind;
}

// Images per label in a minibatch of 32.

constexpr int64_t kMinibatch = 32;
constexpr std::array<int64_t, 5> kImagesPerLabel = {1, 2, 4, 8, 16};

std::vector<Arm> bias_arms(const std::vector<Base>& bases) {
  std::vector<Arm> arms;
  for (const Variant& norm : kNorms) {
    for (const int64_t images : kImagesPerLabel) {
      const std::string tick = fmt::format("{}x{}", kMinibatch / images, images);
      train::Config config = bases[0].config;
      config.sampler = "labels:" + tick;
      arms.push_back(point_of(config, "bias", norm, {static_cast<double>(images), tick}));
    }
  }
  return arms;
}

std::vector<record::Figure> bias_figures(const std::vector<Base>& /*bases*/) {
  return {figure_over("bias", "Accuracy against images per label",
                      "Minibatches of 32 images, from 32 labels with one image each to 2 labels with 16.",
                      {"images per label in a minibatch", true})};
}

ExperimentKind make_bias() {
  ExperimentKind kind = kind_named("bias", "How much bias each norm survives",
                                   "accuracy against images per label, for three norms", 3);
  kind.recipes = {two_characters(6'000, 12'000)};
  kind.reference = "bias-batchnorm-32x1";
  kind.arms = bias_arms;
  kind.figures = bias_figures;
  for (const char* tick : {"16x2", "8x4", "4x8", "2x16"}) {
    const std::string at = fmt::format("With {} ", tick);
    kind.claims.push_back(
        beyond(difference(at + "Batch Renorm beats batchnorm", {fmt::format("bias-renorm-{}", tick)},
                          {fmt::format("bias-batchnorm-{}", tick)}, 0.0)));
    kind.claims.push_back(beyond(difference(at + "Batch Renorm beats group normalization",
                                            {fmt::format("bias-renorm-{}", tick)},
                                            {fmt::format("bias-groupnorm-{}", tick)}, 0.0)));
    kind.claims.push_back(beyond(difference(
        fmt::format("{}Batch Renorm keeps its level of 32x1 (at most {:.0f} points below)", at, kEqual),
        {fmt::format("bias-renorm-{}", tick)}, {"bias-renorm-32x1"}, -kEqual)));
  }
  return kind;
}

// Images that are normalized together.

constexpr std::array<int64_t, 5> kGroups = {32, 16, 8, 4, 2};

std::vector<Arm> batch_size_arms(const std::vector<Base>& bases) {
  std::vector<Arm> arms;
  for (const Variant& norm : {kBatchnorm, kRenorm}) {
    for (const int64_t group : kGroups) {
      train::Config config = bases[0].config;
      config.microbatch = group;
      arms.push_back(
          point_of(config, "groups", norm, {static_cast<double>(group), fmt::format("{}", group)}));
    }
  }
  arms.push_back(arm_of(bases[0].config, "groups", kGroupnorm));
  return arms;
}

std::vector<record::Figure> batch_size_figures(const std::vector<Base>& /*bases*/) {
  return {figure_over(
      "groups", "Accuracy against images normalized together",
      "Independent minibatches. Gradients are always summed over the same 128 images. Group normalization "
      "does not depend on the others, so it is a level.",
      {"images normalized together", true})};
}

ExperimentKind make_batch_size() {
  ExperimentKind kind = kind_named("batch-size", "How small groups each norm survives",
                                   "accuracy against images normalized together, and group normalization", 3);
  kind.recipes = {characters()};
  kind.reference = "groups-batchnorm-32";
  kind.arms = batch_size_arms;
  kind.figures = batch_size_figures;
  for (const int64_t group : kGroups) {
    kind.claims.push_back(beyond(difference(
        fmt::format("In groups of {} Batch Renorm beats batchnorm", group),
        {fmt::format("groups-renorm-{}", group)}, {fmt::format("groups-batchnorm-{}", group)}, 0.0)));
  }
  for (const int64_t group : kGroups) {
    kind.claims.push_back(
        beyond(difference(fmt::format("In groups of {} Batch Renorm beats group normalization", group),
                          {fmt::format("groups-renorm-{}", group)}, {"groups-groupnorm"}, 0.0)));
  }
  return kind;
}

// The paper leaves momentum, r_max, d_max and the length of the hold to future work.

constexpr std::array<double, 5> kMomenta = {0.001, 0.003, 0.01, 0.03, 0.1};
struct FinalLimits {
  double r_max;
  double d_max;
};
constexpr std::array<FinalLimits, 5> kLimits = {{{1, 0}, {1.5, 0.5}, {2, 1}, {3, 5}, {10, 10}}};
constexpr std::array<int64_t, 5> kHolds = {0, 4, 10, 25, 50};  // percent of the run
constexpr int64_t kUsualHold = 4;
constexpr int64_t kRamp = 16;  // percent of the run
constexpr FinalLimits kPaperLimits = {3, 5};

std::string clip_of(const FinalLimits& limits, int64_t hold) {
  return fmt::format("hold:{}%,r:{}@{}%,d:{}@{}%", hold, shortest(limits.r_max), hold + kRamp,
                     shortest(limits.d_max), hold + kRamp);
}

std::vector<Arm> settings_arms(const std::vector<Base>& bases) {
  train::Config config = bases[0].config;
  config.sampler = "labels:16x2";
  std::vector<Arm> arms;
  for (const FinalLimits& limits : kLimits) {
    for (const double momentum : kMomenta) {
      config.norm_momentum = momentum;
      config.clip = clip_of(limits, kUsualHold);
      Arm arm = arm_of(config, "limits", kRenorm);
      const std::string ends = fmt::format("{},{}", shortest(limits.r_max), shortest(limits.d_max)),
                        at = shortest(momentum);
      arm.name = fmt::format("limits-{}-{}-momentum-{}", shortest(limits.r_max), shortest(limits.d_max), at);
      arm.label = fmt::format("r_max, d_max {}, momentum {}", ends, at);
      arm.x = {momentum, at};
      arm.y = {limits.r_max, ends};
      arms.push_back(std::move(arm));
    }
  }
  config.norm_momentum = train::Config{}.norm_momentum;
  for (const int64_t hold : kHolds) {
    config.clip = clip_of(kPaperLimits, hold);
    arms.push_back(point_of(config, "hold", kRenorm, {static_cast<double>(hold), fmt::format("{}", hold)}));
  }
  return arms;
}

std::vector<record::Figure> settings_figures(const std::vector<Base>& /*bases*/) {
  record::Figure limits = figure_over(
      "limits", "Test accuracy for momentum and final limits",
      "Minibatches of 16 labels with 2 images each. The limits are held at 1 and 0 for 4 % of the run and "
      "reach these values at 20 %. Limits 1 and 0 are batchnorm.",
      {"momentum", true});
  limits.y = {"r_max, d_max", false};
  return {limits, figure_over("hold", "Accuracy against the length of the hold",
                              "Momentum 0.01. The limits reach 3 and 5 a sixth of the run after the hold.",
                              {"hold, percent of the run", false})};
}

ExperimentKind make_settings() {
  ExperimentKind kind = kind_named("settings", "Momentum, limits and hold of Batch Renorm",
                                   "accuracy against momentum, limits and hold of Batch Renorm", 3);
  kind.recipes = {two_characters(4'000, 12'000)};
  kind.reference = "limits-3-5-momentum-0.01";
  kind.arms = settings_arms;
  kind.figures = settings_figures;
  kind.claims = {
      beyond(difference("The paper's limits and momentum beat batchnorm", {"limits-3-5-momentum-0.01"},
                        {"limits-1-0-momentum-0.01"}, 0.0)),
      beyond(difference("Wider limits than the paper's change nothing (at most 2 points below)",
                        {"limits-10-10-momentum-0.01"}, {"limits-3-5-momentum-0.01"}, -kEqual)),
      beyond(difference("No hold is as good as the usual one (at most 2 points below)", {"hold-renorm-0"},
                        {"hold-renorm-4"}, -kEqual)),
  };
  return kind;
}

// Embeddings.

constexpr const char* kPxK = "labels:8x4";

std::vector<Arm> metric_arms(const std::vector<Base>& bases) {
  train::Config config = bases[0].config;
  config.sampler = kPxK;
  std::vector<Arm> arms;
  arms.push_back(arm_of(config, "recall", kBatchnorm));
  arms.push_back(arm_of(config, "recall",
                        {"halves", "batchnorm, labels split over groups", train::NormKind::kBatchnorm}));
  arms.back().config.split_pairs = true;
  arms.push_back(arm_of(config, "recall", kRenorm));
  arms.push_back(arm_of(config, "recall", kGroupnorm));
  return arms;
}

std::vector<record::Figure> metric_figures(const std::vector<Base>& /*bases*/) {
  record::Figure figure;
  figure.id = "recall";
  figure.title = "Recall@1 on classes that were not trained on";
  figure.caption =
      "Embeddings trained on minibatches of 8 labels with 4 images each, by a normalized softmax. An image "
      "is found if the nearest other image is of its class.";
  figure.in_paper = false;
  return {figure};
}

ExperimentKind make_metric() {
  ExperimentKind kind = kind_named("metric", "Metric learning: embeddings from P x K minibatches",
                                   "recall on unseen classes of embeddings from 8 x 4 minibatches", 3);
  kind.measure = "recall@1";
  Recipe recipe = characters();
  recipe.settings.objective = train::Objective::kMetric;
  recipe.lengths = {{"strokes", "convnet", 1000, 10}, {"strokes:classes=400", "convnet", 3000, 15}};
  kind.recipes = {recipe};
  kind.reference = "recall-batchnorm";
  kind.arms = metric_arms;
  kind.figures = metric_figures;
  for (const auto& [name, words] :
       {std::pair("halves", "splitting the labels over groups"), std::pair("renorm", "Batch Renorm"),
        std::pair("groupnorm", "group normalization")}) {
    kind.claims.push_back(beyond(difference(fmt::format("In metric learning {} beats batchnorm", words),
                                            {fmt::format("recall-{}", name)}, {"recall-batchnorm"}, 0.0)));
  }
  kind.claims.push_back(beyond(difference("In metric learning Batch Renorm beats group normalization",
                                          {"recall-renorm"}, {"recall-groupnorm"}, 0.0)));
  return kind;
}

// Rows as a sequence.

constexpr int64_t kExtraRows = 20;  // as many again

std::vector<Arm> recurrent_arms(const std::vector<Base>& bases) {
  const train::Config& config = bases[0].config;
  constexpr Variant kPerRow = {"batchnorm", "batchnorm, statistics per row", train::NormKind::kBatchnorm};
  constexpr Variant kShared = {"shared", "batchnorm, averages shared by all rows",
                               train::NormKind::kBatchnorm};
  constexpr Variant kSharedRenorm = {"renorm", "Batch Renorm, averages shared by all rows",
                                     train::NormKind::kRenorm};
  std::vector<Arm> arms;
  for (const Variant& norm : {kPerRow, kShared, kSharedRenorm, kGroupnorm}) {
    arms.push_back(arm_of(config, "rows", norm));
    arms.back().extra_rows = kExtraRows;
  }
  arms[0].config.model += ",steps";
  return arms;
}

std::vector<record::Figure> recurrent_figures(const std::vector<Base>& /*bases*/) {
  record::Figure figure;
  figure.id = "rows";
  figure.title = "Characters read row by row";
  figure.caption =
      "An LSTM with norms inside the cell. The curves are of sequences as long as in training; the table "
      "also "
      "has sequences with 20 more rows of background.";
  figure.in_paper = false;
  return {figure};
}

Recipe rows() {
  Recipe recipe;
  recipe.settings.minibatch = 32;
  recipe.settings.norm_scale = true;
  recipe.settings.optimizer = train::OptimizerKind::kAdamw;
  recipe.settings.lr_schedule = train::LrSchedule::kCosine;
  recipe.settings.lr_final = 0.0;
  recipe.settings.warmup = 100;
  recipe.settings.clip_gradient = 1.0;
  const std::string data = "strokes:classes=50,train=200,test=40";
  recipe.lengths = {{data, "lstm:128", 1500, 10}, {data, "lstm:128", 6000, 15}};
  return recipe;
}

ExperimentKind make_recurrent() {
  ExperimentKind kind = kind_named("recurrent", "Recurrent nets: norms inside an LSTM",
                                   "an LSTM over rows, tested on longer sequences than trained", 3);
  kind.recipes = {rows()};
  kind.reference = "rows-batchnorm";
  kind.arms = recurrent_arms;
  kind.figures = recurrent_figures;
  const auto longer = [](const char* arm) { return Subject{arm, Subject::Measure::kLonger}; };
  kind.claims = {
      beyond(difference(
          "With shared averages Batch Renorm keeps up with batchnorm per row (at most 2 points below)",
          {"rows-renorm"}, {"rows-batchnorm"}, -kEqual)),
      beyond(difference("With shared averages Batch Renorm beats batchnorm", {"rows-renorm"}, {"rows-shared"},
                        0.0)),
      beyond(difference("On longer sequences Batch Renorm beats batchnorm per row", longer("rows-renorm"),
                        longer("rows-batchnorm"), 0.0)),
      beyond(difference("On longer sequences Batch Renorm beats group normalization", longer("rows-renorm"),
                        longer("rows-groupnorm"), 0.0)),
  };
  return kind;
}

}  // namespace

std::vector<ExperimentKind> beyond_the_paper() {
  return {make_bias(), make_batch_size(), make_settings(), make_metric(), make_recurrent()};
}

}  // namespace renorm::experiments
