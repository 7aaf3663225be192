// The unit of the LSTM cell: a product with a matrix, normalized.
#pragma once

#include <torch/nn/modules/container/any.h>

#include <cstdint>
#include <vector>

#include "models/model.h"

namespace renorm::models {

// A product with a matrix, and the norm of the step: one norm for all steps, or one for each. Steps beyond
// the last one use its norm.
class StepUnitImpl : public torch::nn::Module {
 public:
  StepUnitImpl(int64_t in, int64_t out, int64_t steps, const MakeNorm& make_norm);
  torch::Tensor forward(const torch::Tensor& x, size_t step);  // [n, in] -> [n, out]

  torch::Tensor weight;  // [out, in]
  std::vector<torch::nn::AnyModule> norms;
};
TORCH_MODULE(StepUnit);

}  // namespace renorm::models
