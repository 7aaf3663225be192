// Memory for the tensors of a program that trains.
#pragma once

#include <cstddef>

namespace renorm::cli {

// From now on the memory of large tensors is kept when they are freed and handed to the next ones of about
// their size, instead of going back to the system. A training step asks for the same sizes again and again,
// and taking fresh pages costs a large net more than its norms do. The blocks in use and those kept never
// exceed the most that was in use at once, so the peak stays about what it would have been.
void reuse_tensor_memory();

// Large tensors only.
struct TensorMemory {
  size_t in_use;
  size_t kept;
  size_t most_in_use;  // at once, so far
};
TensorMemory tensor_memory();

}  // namespace renorm::cli
