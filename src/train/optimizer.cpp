#include "train/optimizer.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "train/dense.h"
#include "train/optimizer_rules.h"

namespace renorm::train {
namespace {

// State of parameters narrower than float is float: a mean square that moves by a thousandth would stand
// still in bfloat16.
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
    // A model may be moved to another order of memory after its optimiser was made.
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

// Several sums side by side, because one would wait for each addition to end.
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

// Partial sums belong to blocks of fixed size, so that the number of threads does not change the result.
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
