// Shared by the tests of the optimizers.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "train/optimizer.h"
#include "train/tensor_file.h"

namespace renorm::train {

constexpr double kDoubleTolerance = 1e-12;
constexpr double kFloatTolerance = 1e-6;
constexpr double kRate = 0.01;

// Maximum difference relative to the maximum magnitude, which counts as at least one.
inline double error(const torch::Tensor& actual, const torch::Tensor& expected) {
  const auto a = actual.detach().to(torch::kDouble);
  const auto e = expected.detach().to(torch::kDouble);
  return (a - e).abs().max().item<double>() / std::max(1.0, e.abs().max().item<double>());
}

// Shapes of weights, biases and scalars, with and without vector tails.
inline std::vector<NamedTensor> make_parameters(at::ScalarType dtype = torch::kFloat) {
  std::vector<NamedTensor> all;
  const std::vector<std::pair<std::string, std::vector<int64_t>>> shapes = {
      {"conv.weight", {5, 3, 3, 3}},
      {"pointwise.weight", {6, 4, 1, 1}},
      {"linear.weight", {7, 9}},
      {"linear.bias", {7}},
      {"one.bias", {1}}};
  all.reserve(shapes.size());
  for (const auto& [name, shape] : shapes) {
    all.push_back({name, torch::randn(shape, torch::dtype(dtype)).set_requires_grad(true)});
  }
  return all;
}

inline std::vector<NamedTensor> copies(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> all;
  all.reserve(parameters.size());
  for (const auto& p : parameters) {
    all.push_back({p.name, p.tensor.detach().clone().set_requires_grad(true)});
  }
  return all;
}

// The gradients of step `step`: the same for every set of parameters.
inline void set_gradients(std::vector<NamedTensor>& parameters, int64_t step) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + step));
  for (auto& p : parameters) {
    p.tensor.mutable_grad() =
        at::randn(p.tensor.sizes(), generator, torch::kDouble).to(p.tensor.scalar_type());
  }
}

inline bool same_bits(const std::vector<NamedTensor>& a, const std::vector<NamedTensor>& b) {
  return encode_tensors(a) == encode_tensors(b);
}

inline OptimizerOptions options_of(const std::string& kind, double momentum, double weight_decay) {
  OptimizerOptions options;
  options.kind = parse_choice<OptimizerKind>(kind);
  options.momentum = momentum;
  options.weight_decay = weight_decay;
  return options;
}

// A learning rate that changes from step to step.
inline double rate_at(int64_t step) { return kRate * (1.0 + 0.5 * std::sin(static_cast<double>(step))); }

inline const std::vector<OptimizerOptions>& all_kinds() {
  static const std::vector<OptimizerOptions> all = {
      options_of("rmsprop-tf", 0.0, 0.0), options_of("rmsprop-tf", 0.9, 0.01),
      options_of("rmsprop", 0.0, 0.0),    options_of("rmsprop", 0.9, 0.01),
      options_of("sgd", 0.0, 0.01),       options_of("sgd", 0.9, 0.0),
      options_of("adamw", 0.0, 0.01)};
  return all;
}

}  // namespace renorm::train
