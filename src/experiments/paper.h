// The results section of the paper, scaled down, and the same with a stronger bias.
#pragma once

#include "experiments/experiment.h"

namespace renorm::experiments {

// Data with few labels gets samplers that are biased for it.
const ExperimentKind& paper();

inline Experiment paper_experiment(const ExperimentOptions& options) {
  return make_experiment(paper(), options);
}

}  // namespace renorm::experiments
