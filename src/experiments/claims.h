// Which of the paper's claims an experiment bears out. No torch.
#pragma once

#include "record/results.h"

namespace renorm::experiments {

// Sets `claims` and `test` of the results from the figures of their arms. A claim about arms that are not
// part of the experiment is left out; one about arms without all their seeds is not resolved.
//
// A claim is about a difference of two accuracies. It carries Welch's 95 % interval; with a single seed, the
// one that the size of the test set alone gives. The claim holds if the whole interval lies where the claim
// puts it, does not hold if all of it lies elsewhere, and is not resolved otherwise. What is said to recover
// from a loss is not resolved if there is none.
void judge(record::Results* results);

}  // namespace renorm::experiments
