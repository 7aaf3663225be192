// Whether a run computes in bfloat16 on a machine where that is slow, rounds sums or is refused by LibTorch.
// A run is trained in its own dtype or not at all, and is evaluated in float there.
#pragma once

#include <string>

#include "models/bfloat16.h"

namespace renorm::train {

// Where the dtype of a run comes from.
enum class DtypeFrom {
  kSettings,      // the settings given now
  kUnstartedRun,  // the stored settings of a run that recorded nothing yet
  kBegunRun,      // a run that keeps its dtype
};

// Throws UsageError, with what to do instead, if such a run is refused. A run from a folder is refused only
// where LibTorch cannot compute it. Otherwise returns a sentence to note, or "" if bfloat16 is useful.
std::string judge_bfloat16(const models::BFloat16Cost& cost, DtypeFrom from, bool is_forced);

// A sentence to note if a run in bfloat16 is evaluated in float, or "" if bfloat16 is useful.
std::string float_instead(const models::BFloat16Cost& cost);

}  // namespace renorm::train
