// Generated calls of the operators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/random.h"
#include "tensors.h"

namespace renorm::test {

// The memory layout of a tensor.
enum class Memory {
  kContiguous,
  kMisaligned,           // contiguous, one value after an aligned address
  kChannelsLast,         // of any rank
  kSliced,               // every second example and every second value of the last dimension
  kSlicedChannelsLast,   // every second position of a channels-last tensor
  kTransposed,           // first and second dimension swapped
  kExpanded,             // stride 0 in the last dimension
  kExpandedFromOneValue  // stride 0 in all dimensions, as the gradient of a sum
};

// The values in that layout. In an expanded layout the first values are repeated.
at::Tensor place(const at::Tensor& values, Memory memory);

struct Case {
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> sizes;
  Memory input_memory = Memory::kContiguous;
  Memory grad_memory = Memory::kContiguous;
  bool has_weight = true;
  bool has_bias = true;
  bool has_averages = true;
  bool has_residual = false;
  ops::BatchRenormArguments arguments;
};

// At most about 5,000 values. Draws cover every type, rank, memory, grouping, option and limit.
Case draw_case(Random& random);

std::string describe(const Case& c);

// Tensors that a case does not have are undefined.
struct Tensors {
  at::Tensor input;
  at::Tensor grad_output;
  at::Tensor weight;
  at::Tensor bias;
  at::Tensor running_mean;
  at::Tensor running_std;
  at::Tensor residual;
};

// Values from LibTorch's generator; nothing requires a gradient.
Tensors make_tensors(const Case& c);

// Applies `convert` to every defined tensor.
template <class Convert>
Tensors converted(const Tensors& t, const Convert& convert) {
  const auto one = [&](const at::Tensor& tensor) { return tensor.defined() ? convert(tensor) : tensor; };
  return {one(t.input),        one(t.grad_output), one(t.weight),  one(t.bias),
          one(t.running_mean), one(t.running_std), one(t.residual)};
}

// The operators on the tensors of a case.
ops::BatchRenormResult train(const Tensors& t, const ops::BatchRenormArguments& arguments);
at::Tensor infer(const Tensors& t, Activation activation);

// The backward operator after `forward`, with all gradients.
ops::BatchRenormGradients backward(const Tensors& t, const ops::BatchRenormResult& forward,
                                   const ops::BatchRenormArguments& arguments);

}  // namespace renorm::test
