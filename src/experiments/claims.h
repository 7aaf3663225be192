// Which of the paper's claims an experiment bears out. No torch.
#pragma once

#include "record/results.h"

namespace renorm::experiments {

// Sets `claims` and `test` of the results from the figures of their arms. A claim about arms that are not
// part of the experiment is left out; one about arms without all their seeds is not resolved.
//
// A claim is about a difference of two accuracies. Its 95 % interval is that of Student's t with the spread
// pooled over all accuracies of the experiment; with a single seed, the interval that the size of the test
// set alone gives. The claim holds if the whole interval lies where the claim puts it, does not hold if all
// of it lies elsewhere, and is not resolved otherwise.
void judge(record::Results* results);

}  // namespace renorm::experiments
