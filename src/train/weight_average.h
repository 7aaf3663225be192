// An exponential average of every parameter and floating-point buffer. The paper evaluates with such
// averages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/tensors.h"

namespace renorm::train {

// average += (1 - decay_t) (value - average), decay_t = min(decay, (1 + t) / (10 + t)) at update t = 0, 1,
// ... Integers are copied, never averaged.
class WeightAverage {
 public:
  // Starts at the model's present values. The model's tensors may change later, but not be replaced.
  WeightAverage(const torch::nn::Module& model, double decay);
  void update(int64_t t);

  // Live tensors, in the model's order, parameters then buffers: copying into them restores a checkpoint.
  std::vector<NamedTensor> averages();
  double decay_at(int64_t t) const;

  // While it exists, the model holds the averages instead of its own values. Memory is swapped, not copied: a
  // tensor of the model then has the averages, and averages() the model's values.
  class Applied {
   public:
    explicit Applied(WeightAverage& average);
    ~Applied();
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;

   private:
    WeightAverage& average_;
  };

 private:
  struct Pair {
    std::string name;
    torch::Tensor value;    // the model's
    torch::Tensor average;  // ours
  };
  void swap();

  std::vector<Pair> pairs_;
  double decay_;
  bool applied_ = false;
};

}  // namespace renorm::train
