// Linked into test programs that compute bfloat16 convolutions: the command does the same when it starts.
#include "base/cpu.h"

namespace {

[[maybe_unused]] const bool is_restricted = renorm::avoid_incomplete_amx();

}  // namespace
