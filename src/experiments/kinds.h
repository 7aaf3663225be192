// The experiments of `renorm reproduce`.
#pragma once

#include "experiments/experiment.h"

namespace renorm::experiments {

// The results section of the paper, scaled down, and the same with a stronger bias. Data with few labels gets
// samplers that are biased for it.
const ExperimentKind& paper();

// Accuracy against the images per label in a minibatch, for three norms.
const ExperimentKind& bias();

// Accuracy against the number of images that are normalized together, for three norms.
const ExperimentKind& batch_size();

// Accuracy of Batch Renorm against momentum, limits and hold.
const ExperimentKind& settings();

// Recall of embeddings on classes that were not trained on, for minibatches of P labels with K images.
const ExperimentKind& metric();

// Characters read row by row by an LSTM, and tested with more rows.
const ExperimentKind& recurrent();

}  // namespace renorm::experiments
