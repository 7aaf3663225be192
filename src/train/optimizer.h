// The update rules, over named tensors so that their whole state goes into a checkpoint.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/tensors.h"

namespace renorm::train {

// With g the gradient, to which weight_decay * p is added (except for adamw), and v starting at 0 unless
// stated otherwise:
//   rmsprop-tf  v = alpha v + (1 - alpha) g^2, v starting at 1;  move = lr g / sqrt(v + eps);
//               with momentum b = momentum b + move, p -= b; without p -= move
//   rmsprop     v = alpha v + (1 - alpha) g^2;  move = g / (sqrt(v) + eps);
//               with momentum b = momentum b + move, p -= lr b; without p -= lr move
//   sgd         with momentum b = momentum b + g, p -= lr b; without p -= lr g
//   adamw       p -= lr weight_decay p;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//               p -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) at step t = 1, 2, ...
// The last three are LibTorch's; the first is TensorFlow's, which trained Inception.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kRmspropTf;
  double momentum = 0.0;
  double alpha = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One step along the parameters' gradients. A parameter without a gradient, and its state, do not change.
  virtual void step(double learning_rate) = 0;
  // All state, named after the parameters ("stem.conv.weight.mean_square") and complete from the start. The
  // tensors are the live ones, so copying into them restores a checkpoint. Counters are tensors too.
  virtual std::vector<NamedTensor> state() = 0;
};

// Weight decay applies to parameters of two and more dimensions: norms and biases are exempt.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options,
                                          std::vector<NamedTensor> parameters);

// The norm of all gradients together, summed in double, the same for any number of threads. Not finite if a
// gradient is not.
double gradient_norm(const std::vector<NamedTensor>& parameters);
// Multiplies all gradients by `factor`.
void scale_gradients(const std::vector<NamedTensor>& parameters, double factor);

}  // namespace renorm::train
