// Which claims of an experiment its figures support.
#pragma once

#include <vector>

#include "experiments/experiment.h"
#include "record/results.h"

namespace renorm::experiments {

// Sets `claims` and `test` of the results from the figures of their arms.
//
// A difference of two accuracies has Student's 95 % interval of the differences by seed; with a single seed,
// the interval that the size of the test set alone gives. The claim holds if the whole interval lies where
// the claim puts it, does not hold if all of it lies elsewhere, and is not resolved otherwise.
void judge(const std::vector<ClaimPlan>& plans, record::Results* results);

}  // namespace renorm::experiments
