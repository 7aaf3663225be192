#include "train/optimizer.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

namespace renorm::train {
namespace {

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

// Values that change with step and parameter.
struct StepRates {
  double learning_rate;
  double weight_decay;
  int64_t step;  // of this parameter, from 1; only for rules that count steps
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

// State of parameters narrower than float is float: in bfloat16 a mean square that changes by a thousandth
// would not move.
at::ScalarType state_type(const torch::Tensor& parameter) {
  return parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

torch::Tensor wide_copy(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU, torch::kDouble, /*non_blocking=*/false, /*copy=*/true).contiguous();
}

template <typename Rule>
class RuleOptimizer final : public Optimizer {
 public:
  RuleOptimizer(const OptimizerOptions& options, std::vector<NamedTensor> parameters)
      : rule_(options), kinds_(rule_.kinds()), weight_decay_(options.weight_decay) {
    const torch::NoGradGuard no_grad;
    slots_.reserve(parameters.size());
    for (NamedTensor& parameter : parameters) slots_.push_back(make_slot(std::move(parameter)));
  }

  void step(double learning_rate) override {
    const torch::NoGradGuard no_grad;
    for (Slot& slot : slots_) {
      const torch::Tensor& gradient = slot.parameter.tensor.grad();
      if (!gradient.defined()) continue;
      StepRates rates{learning_rate, slot.decays ? weight_decay_ : 0.0, 0};
      if (Rule::kCountsSteps) rates.step = ++*slot.steps.template data_ptr<int64_t>();
      update(slot, gradient, rates);
    }
  }

  std::vector<NamedTensor> state() override {
    std::vector<NamedTensor> all;
    for (Slot& slot : slots_) {
      const std::string prefix = slot.parameter.name + ".";
      for (size_t k = 0; k < kinds_.size(); ++k) all.push_back({prefix + kinds_[k].name, slot.state[k]});
      if (Rule::kCountsSteps) all.push_back({prefix + "step", slot.steps});
    }
    return all;
  }

 private:
  struct Slot {
    NamedTensor parameter;
    std::vector<torch::Tensor> state;
    torch::Tensor steps;  // defined if the rule counts them
    bool decays;
  };

  Slot make_slot(NamedTensor parameter) const {
    Slot slot;
    const torch::Tensor& value = parameter.tensor;
    const auto type = torch::TensorOptions().dtype(state_type(value));
    for (const StateKind& kind : kinds_) slot.state.push_back(torch::full_like(value, kind.start, type));
    if (Rule::kCountsSteps) slot.steps = torch::zeros({}, torch::kLong);
    slot.decays = value.dim() >= 2;
    slot.parameter = std::move(parameter);
    return slot;
  }

  static bool is_plain(const Slot& slot, const torch::Tensor& gradient, at::ScalarType type) {
    const torch::Tensor& value = slot.parameter.tensor;
    // A model may change its memory format after its optimizer was made.
    return pairs_up(value, gradient, type) &&
           std::all_of(slot.state.begin(), slot.state.end(),
                       [&](const torch::Tensor& state) { return pairs_up(value, state, type); });
  }

  void update(Slot& slot, const torch::Tensor& gradient, const StepRates& rates) const {
    const torch::Tensor& value = slot.parameter.tensor;
    if (is_plain(slot, gradient, at::kFloat)) {
      loop<float>(value, gradient, slot.state, rates);
    } else if (is_plain(slot, gradient, at::kDouble)) {
      loop<double>(value, gradient, slot.state, rates);
    } else {
      update_copies(slot, gradient, rates);
      return;
    }
    mark_written(value);
  }

  // Any dtype, order of memory and device.
  void update_copies(Slot& slot, const torch::Tensor& gradient, const StepRates& rates) const {
    const torch::Tensor value = wide_copy(slot.parameter.tensor);
    std::vector<torch::Tensor> state;
    for (const torch::Tensor& tensor : slot.state) state.push_back(wide_copy(tensor));
    loop<double>(value, wide_copy(gradient), state, rates);
    slot.parameter.tensor.copy_(value);
    for (size_t k = 0; k < state.size(); ++k) slot.state[k].copy_(state[k]);
  }

  template <typename T>
  void loop(const torch::Tensor& value, const torch::Tensor& gradient,
            const std::vector<torch::Tensor>& state, const StepRates& rates) const {
    ParameterMemory<T> memory{value.data_ptr<T>(), gradient.data_ptr<T>(), {nullptr, nullptr}};
    for (size_t k = 0; k < state.size(); ++k) memory.state[k] = state[k].template data_ptr<T>();
    at::parallel_for(0, value.numel(), kValuesPerTask,
                     [&](int64_t first, int64_t last) { rule_.update(memory, rates, first, last); });
  }

  Rule rule_;
  std::vector<StateKind> kinds_;
  double weight_decay_;
  std::vector<Slot> slots_;
};

// Several independent sums: a single one would wait for each addition.
template <typename T>
double sum_of_squares(const T* values, int64_t count) {
  constexpr int64_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(values[i + lane]);
      lanes[static_cast<size_t>(lane)] += value * value;
    }
  }
  double sum = 0.0;
  for (; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Partial sums are of blocks of fixed size, so that the number of threads does not change the result.
template <typename T>
double blockwise_sum_of_squares(const torch::Tensor& tensor) {
  const T* values = tensor.data_ptr<T>();
  const int64_t count = tensor.numel();
  if (count <= kValuesPerTask) return sum_of_squares(values, count);
  const int64_t blocks = (count + kValuesPerTask - 1) / kValuesPerTask;
  std::vector<double> partial(static_cast<size_t>(blocks));
  at::parallel_for(0, blocks, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t start = block * kValuesPerTask;
      partial[static_cast<size_t>(block)] =
          sum_of_squares(values + start, std::min(kValuesPerTask, count - start));
    }
  });
  double sum = 0.0;
  for (const double block : partial) sum += block;
  return sum;
}

double sum_of_squares(const torch::Tensor& tensor) {
  if (is_dense(tensor) && tensor.scalar_type() == at::kFloat) return blockwise_sum_of_squares<float>(tensor);
  return blockwise_sum_of_squares<double>(wide_copy(tensor));
}

template <typename T>
void scale(const torch::Tensor& tensor, double factor) {
  T* values = tensor.data_ptr<T>();
  const T by = static_cast<T>(factor);
  at::parallel_for(0, tensor.numel(), kValuesPerTask, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) values[i] *= by;
  });
  mark_written(tensor);
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          std::vector<NamedTensor> parameters) {
  switch (options.kind) {
    case OptimizerKind::kRmspropTf:
      return std::make_unique<RuleOptimizer<RmspropRule<RmspropForm::kTensorFlow>>>(options, parameters);
    case OptimizerKind::kRmsprop:
      return std::make_unique<RuleOptimizer<RmspropRule<RmspropForm::kLibTorch>>>(options, parameters);
    case OptimizerKind::kSgd:
      return std::make_unique<RuleOptimizer<SgdRule>>(options, parameters);
    case OptimizerKind::kAdamw:
      break;
  }
  return std::make_unique<RuleOptimizer<AdamwRule>>(options, parameters);
}

double gradient_norm(const std::vector<NamedTensor>& parameters) {
  const torch::NoGradGuard no_grad;
  double sum = 0.0;
  for (const NamedTensor& parameter : parameters) {
    const torch::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined()) sum += sum_of_squares(gradient);
  }
  return std::sqrt(sum);
}

void scale_gradients(const std::vector<NamedTensor>& parameters, double factor) {
  const torch::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters) {
    torch::Tensor gradient = parameter.tensor.grad();
    if (!gradient.defined()) continue;
    if (is_dense(gradient) && gradient.scalar_type() == at::kFloat) {
      scale<float>(gradient, factor);
    } else {
      gradient.mul_(factor);
    }
  }
}

}  // namespace renorm::train
