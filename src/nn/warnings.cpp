#include "nn/warnings.h"

#include <c10/util/Exception.h>

#include <atomic>

namespace renorm {
namespace {

std::atomic<bool> warned_of_hold{false};
std::atomic<bool> warned_of_uncommitted{false};

}  // namespace

void warn_of_hold(const std::string& who, int64_t step, int64_t hold) {
  if (warned_of_hold.exchange(true)) return;
  if (step == 0) {
    TORCH_WARN(who, ": this layer has been plain batchnorm so far, because no training step was counted; ",
               "with deferred statistics, commit() counts one");
    return;
  }
  TORCH_WARN(
      who, ": after ", step, step == 1 ? " training step" : " training steps",
      " this layer has been plain batchnorm so far, because its clip schedule holds until step ", hold,
      "; for a run of N steps use options.clip(ClipSchedule::paper(N)) or renorm::set_clip(model, ...)");
}

void warn_of_uncommitted(const std::string& who, int64_t groups) {
  if (warned_of_uncommitted.exchange(true)) return;
  TORCH_WARN(who, ": evaluated while deferred statistics of ", groups,
             " groups are not in the averages; call commit() after each training step");
}

void reset_warnings() {
  warned_of_hold = false;
  warned_of_uncommitted = false;
}

}  // namespace renorm
