#include "experiments/paper.h"

#include <fmt/format.h>

#include <utility>

namespace renorm::experiments {
namespace {

constexpr int64_t kFewLabels = 32;

// Margins in percentage points, part of the wording of claims.
constexpr double kEqual = 2.0;      // "agree", "the i.i.d. level"
constexpr double kClearLoss = 5.0;  // "loses"
constexpr double kFewClipped = 0.05;
constexpr double kNoneClipped = 0.001;

// How minibatches are biased, and how a biased batchnorm is evaluated with batch statistics.
struct Samplers {
  std::string pairs;
  std::string pairs_evaluation;
  std::string blocks;
};

// The paper draws 16 of 1,000 labels; of ten labels nearly all would be drawn.
Samplers samplers_for(int64_t labels) {
  if (labels < kFewLabels) return {"labels:4x8", "labels:4x8", "blocks:2x4x8"};
  return {"labels:16x2", "labels:25x2", "blocks:8x16x2"};
}

using train::NormKind;

struct Variant {
  const char* name;
  const char* label;
  NormKind norm;
};
constexpr Variant kBatchnorm = {"batchnorm", "batchnorm", NormKind::kBatchnorm};
constexpr Variant kRenorm = {"renorm", "Batch Renorm", NormKind::kRenorm};

Arm arm_of(const train::Config& base, const std::string& figure, const Variant& variant,
           record::PaperFigures paper = {}) {
  Arm arm;
  arm.name = fmt::format("{}-{}", figure, variant.name);
  arm.figure = figure;
  arm.label = variant.label;
  arm.config = base;
  arm.config.norm = variant.norm;
  arm.paper = std::move(paper);
  return arm;
}

record::PaperFigures test_accuracy(double percent, const std::string& note) {
  return {percent, std::nullopt, std::nullopt, note};
}

void add_iid(const train::Config& base, std::vector<Arm>* arms) {
  arms->push_back(arm_of(base, "iid", {"batchnorm", "i.i.d. batchnorm", NormKind::kBatchnorm},
                         test_accuracy(78.3, "at 130k steps")));
  arms->push_back(arm_of(base, "iid", {"renorm", "i.i.d. Batch Renorm", NormKind::kRenorm},
                         test_accuracy(78.5, "at 130k steps")));
}

void add_micro4(train::Config base, std::vector<Arm>* arms) {
  base.microbatch = 4;
  arms->push_back(arm_of(base, "micro4", kBatchnorm, test_accuracy(74.2, "at 210k steps, slow")));
  arms->push_back(arm_of(base, "micro4", kRenorm, test_accuracy(76.5, "at 130k steps, faster")));
}

void add_pairs(train::Config base, const Samplers& samplers, std::vector<Arm>* arms) {
  base.sampler = samplers.pairs;
  arms->push_back(arm_of(base, "pairs", kBatchnorm, {67.0, 72.8, 76.5, ""}));
  arms->back().measures_training_set = true;
  arms->back().batch_statistics_sampler = samplers.pairs_evaluation;
  arms->push_back(arm_of(base, "pairs",
                         {"halves", "batchnorm, labels split over groups", NormKind::kBatchnorm},
                         test_accuracy(77.4, "at 140k steps")));
  arms->back().config.split_pairs = true;
  arms->push_back(arm_of(base, "pairs", kRenorm, test_accuracy(78.5, "at 120k steps")));
}

void add_blocks(train::Config base, const Samplers& samplers, std::vector<Arm>* arms) {
  base.sampler = samplers.blocks;
  arms->push_back(arm_of(base, "blocks", kBatchnorm));
  arms->back().measures_training_set = true;
  arms->back().batch_statistics_sampler = samplers.blocks;
  arms->push_back(
      arm_of(base, "blocks", {"dealt", "batchnorm, images dealt over minibatches", NormKind::kBatchnorm}));
  arms->back().config.deal = true;
  arms->push_back(arm_of(base, "blocks", kRenorm));
}

std::vector<Arm> arms(const train::Config& base, int64_t labels) {
  const Samplers samplers = samplers_for(labels);
  std::vector<Arm> arms;
  add_iid(base, &arms);
  add_micro4(base, &arms);
  add_pairs(base, samplers, &arms);
  add_blocks(base, samplers, &arms);
  return arms;
}

std::vector<record::Figure> figures(int64_t labels) {
  const Samplers samplers = samplers_for(labels);
  return {
      {"iid", "Independent minibatches of 32",
       "Both norms, 4 minibatches of 32 per step. In the paper Batch Renorm ends marginally higher.", true},
      {"micro4", "Normalized in groups of 4",
       "Gradients are summed over the same images as above, but statistics come from 4 images.", true},
      {"pairs", "Biased minibatches: " + samplers.pairs,
       "In the paper a minibatch has 16 labels with 2 images each, and batchnorm learns to use the company "
       "an image keeps; with the images of a label split over groups, or with Batch Renorm, it cannot.",
       true},
      {"blocks", "More strongly biased minibatches: " + samplers.blocks,
       "The labels of a minibatch come from one block of neighbours, as in reinforcement or continual "
       "learning.",
       false},
  };
}

ClaimPlan difference(std::string text, Subject a, Subject b, double above) {
  ClaimPlan claim;
  claim.text = std::move(text);
  claim.a = std::move(a);
  claim.b = std::move(b);
  claim.above = above;
  return claim;
}

// The claims about a way to bias minibatches, and about the ways to recover from it.
void add_biased(const std::string& bias, const std::string& split_arm, const std::string& split_text,
                bool in_paper, std::vector<ClaimPlan>* claims) {
  const std::string on = "On " + bias;
  const Subject iid = {"iid-batchnorm"}, biased = {bias + "-batchnorm"}, renorm = {bias + "-renorm"};
  const Subject training_set = {biased.arm, Subject::Measure::kTrainingSet};
  const Subject batch_statistics = {biased.arm, Subject::Measure::kBatchStatistics};
  const std::string loss = fmt::format("{} batchnorm loses (at least {:.0f} points)", on, kClearLoss);
  const size_t first = claims->size();
  claims->push_back(difference(loss, iid, biased, kClearLoss));
  claims->push_back(difference(on + " its training accuracy, too, is below the i.i.d. test accuracy", iid,
                               training_set, 0.0));
  const size_t recovering = claims->size();
  claims->push_back(difference(on + " batch statistics at evaluation recover at least part", batch_statistics,
                               biased, 0.0));
  claims->push_back(
      difference(fmt::format("{} {} recovers at least part", on, split_text), {split_arm}, biased, 0.0));
  claims->push_back(difference(on + " Batch Renorm recovers at least part", renorm, biased, 0.0));
  claims->push_back(difference(
      fmt::format("{} Batch Renorm recovers to its i.i.d. level (at most {:.0f} points below)", on, kEqual),
      renorm, {"iid-renorm"}, -kEqual));
  for (size_t i = first; i < claims->size(); ++i) (*claims)[i].in_paper = in_paper;
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
  add_biased("pairs", "pairs-halves", "splitting the pairs", true, &claims);
  ClaimPlan clipping;
  clipping.text = "Few r and no d are clipped";
  clipping.kind = ClaimPlan::Kind::kClipping;
  clipping.arms = {"iid-renorm", "micro4-renorm", "pairs-renorm"};
  clipping.max_r = kFewClipped;
  clipping.max_d = kNoneClipped;
  claims.push_back(clipping);
  add_biased("blocks", "blocks-dealt", "dealing the images", false, &claims);
  return claims;
}

ExperimentKind make_paper() {
  ExperimentKind kind;
  kind.command = "renorm reproduce";
  kind.title = "Batch Renormalization: the paper's experiments";
  kind.sizes = {{"quick", "strokes", "convnet", 1300, 1, 10},
                {"full", "strokes:train=200", "convnet", 4000, 3, 20}};
  kind.reference = "iid-batchnorm";
  kind.base.workers = 4;
  kind.base.minibatch = 32;
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
