// Parts that several experiments are made of: recipes, arms and claims.
#pragma once

#include <string>

#include "experiments/experiment.h"

namespace renorm::experiments {

// Margins in percentage points, part of the wording of claims.
constexpr double kEqual = 2.0;      // "agree", "the i.i.d. level"
constexpr double kClearLoss = 5.0;  // "loses"

// Characters and a convolutional net, trained as in the paper: RMSProp, averaged weights, 4 minibatches of 32
// per step. The lengths are those of the experiment `paper`.
Recipe characters();

// Images that show two characters, of which one is meant, and a net whose features start sparse: in such data
// batchnorm learns to use the other images of a minibatch. docs/reproduction.md has what it takes. One
// minibatch of 32 per step.
Recipe two_characters(int64_t quick_steps, int64_t full_steps);

struct Variant {
  const char* name;
  const char* label;
  train::NormKind norm;
};
constexpr Variant kBatchnorm = {"batchnorm", "batchnorm", train::NormKind::kBatchnorm};
constexpr Variant kRenorm = {"renorm", "Batch Renorm", train::NormKind::kRenorm};
constexpr Variant kGroupnorm = {"groupnorm", "group normalization", train::NormKind::kGroupnorm};

// The arm "FIGURE-NAME".
Arm arm_of(const train::Config& config, const std::string& figure, const Variant& variant,
           record::PaperFigures paper = {});

// The claim that a - b is above a number of percentage points.
ClaimPlan difference(std::string text, Subject a, Subject b, double above);

}  // namespace renorm::experiments
