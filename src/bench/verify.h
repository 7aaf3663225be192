// Checks before timing that all competitors compute the same.
#pragma once

#include "bench/competitors.h"

namespace renorm::bench {

// Ours at (r_max, d_max) = (1, 0) against native batchnorm, ours with limits against tensor operations, ours
// as shipped against ours preallocated, oneDNN against native. Throws std::runtime_error that names the two
// and the result in which they differ.
void verify(Field& field);

}  // namespace renorm::bench
