// The processes that share one normalization group.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>

namespace renorm {

// With more than one process, a training forward normalizes the batches of all processes as one. Every
// process then runs the same forwards and backwards in the same order; its batch may be empty. A forward
// calls all_reduce once, and so does a backward that has a gradient of the input.
struct Processes {
  int64_t rank = 0;
  int64_t count = 1;
  // Adds a contiguous tensor of doubles, on the device of the layer, over all processes, in place. The result
  // must be equal in all of them, to the bit.
  std::function<void(torch::Tensor&)> all_reduce;

  bool several() const { return count > 1; }
};

}  // namespace renorm
