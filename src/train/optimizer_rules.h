// The formulas of the optimisers as loops over the memory of one parameter. The formulas stand beside
// OptimizerOptions.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "train/optimizer.h"

namespace renorm::train {

// One parameter. The state tensors come in the order of the rule's kinds(); null where there are fewer.
template <typename T>
struct ParameterMemory {
  T* value;
  const T* gradient;
  T* state[2];
};

struct StateKind {
  const char* name;
  double start;
};

// What differs between the steps and between the parameters.
struct StepRates {
  double learning_rate;
  double weight_decay;
  int64_t step;  // the parameter's own count, from 1; only rules that count steps have one
};

// A rule updates the values [first, last); ranges are independent of each other.

enum class RmspropForm { kTensorFlow, kLibTorch };

template <RmspropForm kForm>
class RmspropRule {
 public:
  static constexpr bool kCountsSteps = false;
  explicit RmspropRule(const OptimizerOptions& options) : options_(options) {}

  std::vector<StateKind> kinds() const {
    const StateKind mean_square = {"mean_square", kForm == RmspropForm::kTensorFlow ? 1.0 : 0.0};
    if (options_.momentum == 0.0) return {mean_square};
    return {mean_square, {"momentum", 0.0}};
  }

  template <typename T>
  void update(const ParameterMemory<T>& memory, const StepRates& rates, int64_t first, int64_t last) const {
    if (memory.state[1] != nullptr) {
      loop<true>(memory, rates, first, last);
    } else {
      loop<false>(memory, rates, first, last);
    }
  }

 private:
  template <bool kMomentum, typename T>
  void loop(const ParameterMemory<T>& memory, const StepRates& rates, int64_t first, int64_t last) const {
    constexpr bool kTensorFlow = kForm == RmspropForm::kTensorFlow;
    T* __restrict value = memory.value;
    const T* __restrict gradient = memory.gradient;
    T* __restrict mean_square = memory.state[0];
    T* __restrict buffer = memory.state[1];
    const T lr = static_cast<T>(rates.learning_rate);
    const T decay = static_cast<T>(rates.weight_decay);
    const T alpha = static_cast<T>(options_.alpha);
    const T rest = static_cast<T>(1.0 - options_.alpha);
    const T eps = static_cast<T>(options_.eps);
    const T momentum = static_cast<T>(options_.momentum);
    for (int64_t i = first; i < last; ++i) {
      const T g = gradient[i] + decay * value[i];
      mean_square[i] = alpha * mean_square[i] + rest * g * g;
      const T root = kTensorFlow ? std::sqrt(mean_square[i] + eps) : std::sqrt(mean_square[i]) + eps;
      if constexpr (!kMomentum) {
        value[i] -= lr * g / root;
      } else if constexpr (kTensorFlow) {
        buffer[i] = momentum * buffer[i] + lr * g / root;
        value[i] -= buffer[i];
      } else {
        buffer[i] = momentum * buffer[i] + g / root;
        value[i] -= lr * buffer[i];
      }
    }
  }

  OptimizerOptions options_;
};

class SgdRule {
 public:
  static constexpr bool kCountsSteps = false;
  explicit SgdRule(const OptimizerOptions& options) : options_(options) {}

  std::vector<StateKind> kinds() const {
    if (options_.momentum == 0.0) return {};
    return {{"momentum", 0.0}};
  }

  template <typename T>
  void update(const ParameterMemory<T>& memory, const StepRates& rates, int64_t first, int64_t last) const {
    if (memory.state[0] != nullptr) {
      loop<true>(memory, rates, first, last);
    } else {
      loop<false>(memory, rates, first, last);
    }
  }

 private:
  template <bool kMomentum, typename T>
  void loop(const ParameterMemory<T>& memory, const StepRates& rates, int64_t first, int64_t last) const {
    T* __restrict value = memory.value;
    const T* __restrict gradient = memory.gradient;
    T* __restrict buffer = memory.state[0];
    const T lr = static_cast<T>(rates.learning_rate);
    const T decay = static_cast<T>(rates.weight_decay);
    const T momentum = static_cast<T>(options_.momentum);
    for (int64_t i = first; i < last; ++i) {
      T g = gradient[i] + decay * value[i];
      if constexpr (kMomentum) {
        buffer[i] = momentum * buffer[i] + g;
        g = buffer[i];
      }
      value[i] -= lr * g;
    }
  }

  OptimizerOptions options_;
};

class AdamwRule {
 public:
  static constexpr bool kCountsSteps = true;
  explicit AdamwRule(const OptimizerOptions& options) : options_(options) {}

  std::vector<StateKind> kinds() const { return {{"mean_gradient", 0.0}, {"mean_square", 0.0}}; }

  template <typename T>
  void update(const ParameterMemory<T>& memory, const StepRates& rates, int64_t first, int64_t last) const {
    T* __restrict value = memory.value;
    const T* __restrict gradient = memory.gradient;
    T* __restrict mean_gradient = memory.state[0];
    T* __restrict mean_square = memory.state[1];
    const double count = static_cast<double>(rates.step);
    const double root_correction = std::sqrt(1.0 - std::pow(options_.beta2, count));
    const T lr = static_cast<T>(rates.learning_rate / (1.0 - std::pow(options_.beta1, count)));
    const T correction = static_cast<T>(root_correction);
    const T keep = static_cast<T>(1.0 - rates.learning_rate * rates.weight_decay);
    const T beta1 = static_cast<T>(options_.beta1);
    const T rest1 = static_cast<T>(1.0 - options_.beta1);
    const T beta2 = static_cast<T>(options_.beta2);
    const T rest2 = static_cast<T>(1.0 - options_.beta2);
    const T eps = static_cast<T>(options_.eps);
    for (int64_t i = first; i < last; ++i) {
      const T g = gradient[i];
      mean_gradient[i] = beta1 * mean_gradient[i] + rest1 * g;
      mean_square[i] = beta2 * mean_square[i] + rest2 * g * g;
      value[i] = keep * value[i] - lr * mean_gradient[i] / (std::sqrt(mean_square[i]) / correction + eps);
    }
  }

 private:
  OptimizerOptions options_;
};

}  // namespace renorm::train
