// Memory of the tensors of a program that trains.
#pragma once

#include <cstddef>

namespace renorm::cli {

// From now on the memory of freed large tensors is kept for tensors of about the same size instead of
// returned to the system. Training steps repeat the same sizes, and fresh pages cost a large net more time
// than its norms do. Blocks in use and kept blocks together never exceed the peak in use, so peak memory
// stays about the same.
void reuse_tensor_memory();

// Large tensors only.
struct TensorMemory {
  size_t in_use;
  size_t kept;
  size_t max_in_use;  // so far
};
TensorMemory tensor_memory();

}  // namespace renorm::cli
