// The experiments of `renorm reproduce`.
#pragma once

#include <vector>

#include "experiments/experiment.h"

namespace renorm::experiments {

// The results section of the paper, scaled down, and the same with a stronger bias. Data with few labels gets
// samplers that are biased for it.
const ExperimentKind& paper();

// In this order:
//   bias        accuracy against the images per label in a minibatch, for three norms
//   batch-size  accuracy against the number of images that are normalized together, for three norms
//   settings    accuracy of Batch Renorm against momentum, limits and hold
//   metric      recall of embeddings on classes that were not trained on, for minibatches of P labels with K
//   images recurrent   characters read row by row by an LSTM, and tested with more rows
std::vector<ExperimentKind> beyond_the_paper();

}  // namespace renorm::experiments
