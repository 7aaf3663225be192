#include "train/weight_average.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstring>

namespace renorm::train {
namespace {

template <typename T>
void move_average(const torch::Tensor& value_tensor, double weight, const torch::Tensor& average_tensor) {
  const T* value = value_tensor.data_ptr<T>();
  T* average = average_tensor.data_ptr<T>();
  const T by = static_cast<T>(weight);
  at::parallel_for(0, value_tensor.numel(), kValuesPerTask, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) average[i] += by * (value[i] - average[i]);
  });
}

void update_one(const torch::Tensor& value, double weight, torch::Tensor& average) {
  if (!value.is_floating_point()) {
    if (pairs_up(value, average, value.scalar_type())) {
      std::memcpy(average.data_ptr(), value.data_ptr(), value.nbytes());
    } else {
      average.copy_(value);
    }
  } else if (pairs_up(value, average, at::kFloat)) {
    move_average<float>(value, weight, average);
  } else if (pairs_up(value, average, at::kDouble)) {
    move_average<double>(value, weight, average);
  } else {
    average.add_(value.detach() - average, weight);
  }
}

}  // namespace

WeightAverage::WeightAverage(const torch::nn::Module& model, double decay) : decay_(decay) {
  const torch::NoGradGuard no_grad;
  for (NamedTensor& named : named_state(model)) {
    torch::Tensor average = named.tensor.detach().clone();
    pairs_.push_back({std::move(named.name), std::move(named.tensor), std::move(average)});
  }
}

void WeightAverage::update(int64_t t) {
  TORCH_CHECK(!applied_,
              "renorm::train::WeightAverage: update must not be called while the averages are applied");
  const torch::NoGradGuard no_grad;
  const double weight = 1.0 - decay_at(t);
  for (Pair& pair : pairs_) update_one(pair.value, weight, pair.average);
}

std::vector<NamedTensor> WeightAverage::averages() {
  std::vector<NamedTensor> all;
  all.reserve(pairs_.size());
  for (const Pair& pair : pairs_) all.push_back({pair.name, pair.average});
  return all;
}

double WeightAverage::decay_at(int64_t t) const {
  return std::min(decay_, static_cast<double>(1 + t) / static_cast<double>(10 + t));
}

void WeightAverage::swap() {
  const torch::NoGradGuard no_grad;
  for (Pair& pair : pairs_) {
    const torch::Tensor held = pair.value.tensor_data();
    pair.value.set_data(pair.average);
    pair.average.set_data(held);
  }
  applied_ = !applied_;
}

WeightAverage::Applied::Applied(WeightAverage& average) : average_(average) {
  TORCH_CHECK(!average_.applied_, "renorm::train::WeightAverage: the averages are applied already");
  average_.swap();
}

WeightAverage::Applied::~Applied() { average_.swap(); }

}  // namespace renorm::train
