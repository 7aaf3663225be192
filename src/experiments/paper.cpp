#include <fmt/format.h>

#include <utility>

#include "experiments/kinds.h"
#include "experiments/plans.h"

namespace renorm::experiments {
namespace {

constexpr int64_t kFewLabels = 32;
constexpr double kFewClipped = 0.05;
constexpr double kNoneClipped = 0.001;
constexpr double kHalf = 0.5;

// How minibatches are biased, and how a biased batchnorm is evaluated with batch statistics.
struct Samplers {
  std::string pairs;
  std::string pairs_evaluation;
  std::string blocks;
};

// The paper draws 16 of 1,000 labels; of ten labels nearly all would be drawn.
Samplers samplers_for(const Base& base) {
  if (base.labels < kFewLabels) return {"labels:4x8", "labels:4x8", "blocks:2x4x8"};
  return {"labels:16x2", "labels:25x2", "blocks:8x16x2"};
}

using train::NormKind;
constexpr Variant kIidBatchnorm = {"batchnorm", "i.i.d. batchnorm", NormKind::kBatchnorm};

record::PaperFigures test_accuracy(double percent, const std::string& note) {
  return {percent, std::nullopt, std::nullopt, note};
}

void add_iid(const Base& base, std::vector<Arm>* arms) {
  arms->push_back(arm_of(base.config, "iid", kIidBatchnorm, test_accuracy(78.3, "at 130k steps")));
  arms->push_back(arm_of(base.config, "iid", {"renorm", "i.i.d. Batch Renorm", NormKind::kRenorm},
                         test_accuracy(78.5, "at 130k steps")));
}

void add_micro4(const Base& base, std::vector<Arm>* arms) {
  train::Config config = base.config;
  config.microbatch = 4;
  arms->push_back(arm_of(config, "micro4", kBatchnorm, test_accuracy(74.2, "at 210k steps, slow")));
  arms->push_back(arm_of(config, "micro4", kRenorm, test_accuracy(76.5, "at 130k steps, faster")));
}

// On data of their own, so with an i.i.d. arm of their own.
void add_pairs(const Base& base, std::vector<Arm>* arms) {
  const Samplers samplers = samplers_for(base);
  arms->push_back(arm_of(base.config, "pairs", {"iid", "i.i.d. batchnorm", NormKind::kBatchnorm},
                         test_accuracy(78.3, "at 130k steps")));
  train::Config config = base.config;
  config.sampler = samplers.pairs;
  arms->push_back(arm_of(config, "pairs", kBatchnorm, {67.0, 72.8, 76.5, ""}));
  arms->back().measures_training_set = true;
  arms->back().batch_statistics_sampler = samplers.pairs_evaluation;
  arms->push_back(arm_of(config, "pairs",
                         {"halves", "batchnorm, labels split over groups", NormKind::kBatchnorm},
                         test_accuracy(77.4, "at 140k steps")));
  arms->back().config.split_pairs = true;
  arms->push_back(arm_of(config, "pairs", kRenorm, test_accuracy(78.5, "at 120k steps")));
}

void add_blocks(const Base& base, std::vector<Arm>* arms) {
  const Samplers samplers = samplers_for(base);
  train::Config config = base.config;
  config.sampler = samplers.blocks;
  arms->push_back(arm_of(config, "blocks", kBatchnorm));
  arms->back().measures_training_set = true;
  arms->back().batch_statistics_sampler = samplers.blocks;
  arms->push_back(
      arm_of(config, "blocks", {"dealt", "batchnorm, images dealt over minibatches", NormKind::kBatchnorm}));
  arms->back().config.deal = true;
  arms->push_back(arm_of(config, "blocks", kRenorm));
}

enum RecipeOf { kCharacters, kTwoCharacters };

std::vector<Arm> arms(const std::vector<Base>& bases) {
  std::vector<Arm> arms;
  add_iid(bases[kCharacters], &arms);
  add_micro4(bases[kCharacters], &arms);
  add_pairs(bases[kTwoCharacters], &arms);
  add_blocks(bases[kCharacters], &arms);
  return arms;
}

record::Figure figure(const std::string& id, const std::string& title, const std::string& caption) {
  record::Figure figure;
  figure.id = id;
  figure.title = title;
  figure.caption = caption;
  return figure;
}

std::vector<record::Figure> figures(const std::vector<Base>& bases) {
  std::vector<record::Figure> figures;
  figures.push_back(
      figure("iid", "Independent minibatches of 32",
             "Both norms, 4 minibatches of 32 per step. In the paper Batch Renorm ends marginally higher."));
  figures.push_back(
      figure("micro4", "Normalized in groups of 4",
             "Gradients are summed over the same images as above, but statistics come from 4 images."));
  figures.push_back(figure(
      "pairs", "Biased minibatches: " + samplers_for(bases[kTwoCharacters]).pairs,
      "A minibatch has 16 labels with 2 images each. An image shows two characters, and its partner tells "
      "which one is meant: batchnorm learns to use the company an image keeps. With the images of a label "
      "split over groups, or with Batch Renorm, it cannot."));
  figures.back().reference = "pairs-iid";
  figures.push_back(
      figure("blocks", "More strongly biased minibatches: " + samplers_for(bases[kCharacters]).blocks,
             "The labels of a minibatch come from one block of neighbours, as in reinforcement or continual "
             "learning."));
  figures.back().in_paper = false;
  return figures;
}

// The claims about a way to bias minibatches, and about the ways to recover from it.
struct Bias {
  std::string figure;
  std::string iid;  // arms whose level is to be recovered
  std::string iid_renorm;
  std::string split_arm;
  std::string split_text;
  bool in_paper;
};

// The claim that there is a loss.
std::string add_loss(const Bias& bias, std::vector<ClaimPlan>* claims) {
  const std::string on = "On " + bias.figure, biased = bias.figure + "-batchnorm";
  std::string loss = fmt::format("{} batchnorm loses (at least {:.0f} points)", on, kClearLoss);
  claims->push_back(difference(loss, {bias.iid}, {biased}, kClearLoss));
  claims->push_back(difference(on + " its training accuracy, too, is below the i.i.d. test accuracy",
                               {bias.iid}, {biased, Subject::Measure::kTrainingSet}, 0.0));
  ClaimPlan falls;
  falls.text =
      fmt::format("On {} its accuracy peaks and falls (by at least {:.0f} points)", bias.figure, kEqual);
  falls.kind = ClaimPlan::Kind::kFalls;
  falls.a = {biased};
  falls.above = kEqual;
  claims->push_back(falls);
  return loss;
}

// The claims about what each remedy recovers.
void add_recovery(const Bias& bias, std::vector<ClaimPlan>* claims) {
  const std::string on = "On " + bias.figure;
  const Subject biased = {bias.figure + "-batchnorm"};
  const auto add = [&](const std::string& what, const Subject& remedy) {
    claims->push_back(
        difference(fmt::format("{} {} back at least half of the loss", on, what), remedy, biased, 0.0));
    claims->back().share = kHalf;
    claims->back().of = {bias.iid};
  };
  const auto add_level = [&](const std::string& what, const Subject& remedy, const std::string& iid) {
    add(what + " wins", remedy);
    claims->push_back(difference(
        fmt::format("{} {} recovers the i.i.d. level (at most {:.0f} points below)", on, what, kEqual),
        remedy, {iid}, -kEqual));
  };
  add("evaluation with batch statistics wins", {biased.arm, Subject::Measure::kBatchStatistics});
  add_level(bias.split_text, {bias.split_arm}, bias.iid);
  add_level("Batch Renorm", {bias.figure + "-renorm"}, bias.iid_renorm);
}

void add_biased(const Bias& bias, std::vector<ClaimPlan>* claims) {
  const size_t first = claims->size();
  const std::string loss = add_loss(bias, claims);
  const size_t recovering = claims->size();
  add_recovery(bias, claims);
  for (size_t i = first; i < claims->size(); ++i) (*claims)[i].in_paper = bias.in_paper;
  for (size_t i = recovering; i < claims->size(); ++i) (*claims)[i].recovers_from = loss;
}

std::vector<ClaimPlan> claims() {
  std::vector<ClaimPlan> claims;
  claims.push_back(difference(
      fmt::format("Batchnorm and Batch Renorm agree on i.i.d. minibatches (within {:.0f} points)", kEqual),
      {"iid-renorm"}, {"iid-batchnorm"}, -kEqual));
  claims.back().below = kEqual;
  claims.push_back(difference("In groups of 4, Batch Renorm beats batchnorm", {"micro4-renorm"},
                              {"micro4-batchnorm"}, 0.0));
  claims.push_back(
      difference("In groups of 4, Batch Renorm is faster", {"micro4-renorm"}, {"micro4-batchnorm"}, 0.0));
  claims.back().kind = ClaimPlan::Kind::kFaster;
  claims.push_back(difference("In groups of 4, Batch Renorm stays below groups of 32", {"iid-renorm"},
                              {"micro4-renorm"}, 0.0));
  add_biased({"pairs", "pairs-iid", "pairs-iid", "pairs-halves", "splitting the pairs", true}, &claims);
  ClaimPlan clipping;
  clipping.text = "Few r and no d are clipped";
  clipping.kind = ClaimPlan::Kind::kClipping;
  clipping.arms = {"iid-renorm", "micro4-renorm", "pairs-renorm"};
  clipping.max_r = kFewClipped;
  clipping.max_d = kNoneClipped;
  claims.push_back(clipping);
  add_biased({"blocks", "iid-batchnorm", "iid-renorm", "blocks-dealt", "dealing the images", false}, &claims);
  return claims;
}

ExperimentKind make_paper() {
  ExperimentKind kind;
  kind.name = "paper";
  kind.command = "renorm reproduce";
  kind.title = "Batch Renormalization: the paper's experiments";
  kind.summary = "the paper's results, and the same with a stronger bias; the default";
  kind.sizes = {{"quick", 1}, {"full", 5}};
  constexpr int64_t kPairsSteps = 12'000;  // the fall takes as long, also in a quick experiment
  kind.recipes = {characters(), two_characters(kPairsSteps, kPairsSteps)};
  kind.reference = "iid-batchnorm";
  kind.arms = arms;
  kind.figures = figures;
  kind.claims = claims();
  return kind;
}

}  // namespace

const ExperimentKind& paper() {
  static const ExperimentKind kind = make_paper();
  return kind;
}

}  // namespace renorm::experiments
