#include "agreement.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/reference/reference.h"
#include "support/compare.h"

namespace renorm::test {
namespace {

using kernels::Activation;
using kernels::Backward;
using kernels::BFloat16;
using kernels::ParallelFor;
using kernels::Stat;
using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;
namespace reference = kernels::reference;

// The first failure, or success.
AssertionResult all(const std::vector<AssertionResult>& results) {
  for (const AssertionResult& result : results) {
    if (!result) return result;
  }
  return AssertionSuccess();
}

template <typename T>
void silence_near_zero(const Buffer<double>& pre_activation, Arrays<T>* fast, Arrays<double>* expected) {
  // Kernels compute the pre-activation in the type of the statistics.
  const double margin = kTolerance<Stat<T>> * scale_of(pre_activation);
  for (int64_t i = 0; i < pre_activation.size(); ++i) {
    if (std::abs(pre_activation[i]) > margin) continue;
    fast->dy[i] = narrow<T>(0.0);
    expected->dy[i] = 0.0;
  }
}

template <typename T>
void silence_uncertain_masks(Case c, Arrays<T>* fast, Arrays<double>* expected) {
  if (c.activation != Activation::kRelu) return;
  c.activation = Activation::kNone;
  reference::forward(forward_problem(c, *expected));
  silence_near_zero(expected->y, fast, expected);
  reference::inference(inference_problem(c, *expected));
  silence_near_zero(expected->y, fast, expected);
}

// The mean is batch_mean + batch_mean_low.
template <typename P>
AssertionResult means_agree(const Buffer<P>& mean, const Buffer<P>& low, const Buffer<double>& expected) {
  Buffer<double> sum(mean.size(), 0, Buffer<double>::Use::kOutput);
  for (int64_t i = 0; i < mean.size(); ++i) sum[i] = widen(mean[i]) + widen(low[i]);
  if (!mean.intact() || !low.intact()) return AssertionFailure() << "batch_mean: written outside its bounds";
  return near("batch_mean", sum, expected, kTolerance<P>);
}

// One bit per value, and zeros behind the last.
template <typename T>
AssertionResult mask_agrees(const Case& c, const Arrays<T>& fast) {
  if (!fast.mask.intact()) return AssertionFailure() << "mask: written outside its bounds";
  if (!has_mask(c)) return AssertionSuccess();
  for (int64_t i = 0; i < 8 * fast.mask.size(); ++i) {
    const bool stopped = (fast.mask[i / 8] >> i % 8 & 1) != 0;
    const bool expected = i < fast.y.size() && widen(fast.y[i]) <= 0.0;
    if (stopped != expected) return AssertionFailure() << "mask: bit " << i << " is " << stopped;
  }
  return AssertionSuccess();
}

template <typename T>
AssertionResult forward_agrees(const Case& c, const ParallelFor& parallel_for, Arrays<T>* fast,
                               Arrays<double>* expected) {
  constexpr double kOfStatistics = kTolerance<Stat<T>>;
  kernels::forward(forward_problem(c, *fast), parallel_for);
  reference::forward(forward_problem(c, *expected));
  return all({means_agree(fast->batch_mean, fast->batch_mean_low, expected->batch_mean),
              near("batch_std", fast->batch_std, expected->batch_std, kOfStatistics),
              near("r", fast->r, expected->r, kOfStatistics), near("d", fast->d, expected->d, kOfStatistics),
              near("y", fast->y, expected->y, kTolerance<T>), mask_agrees(c, *fast)});
}

// Runs the fast kernel and compares the requested outputs with those of the reference.
template <typename T>
AssertionResult gradients_agree(const std::string& name, const Backward<T>& problem,
                                const ParallelFor& parallel_for, Arrays<T>* fast,
                                const Arrays<double>& expected) {
  constexpr double kOfParameters = kTolerance<Stat<T>>;
  // A parameter's gradient is a sum of n * s terms of order 1 and either sign. Its scale is the typical size
  // of such a sum, even where the terms cancel.
  const double sum_scale = std::sqrt(static_cast<double>(problem.shape.n * problem.shape.s));
  fast->dx.forget();
  fast->dresidual.forget();
  fast->dweight.forget();
  fast->dbias.forget();
  kernels::backward(problem, parallel_for);
  std::vector<AssertionResult> results;
  if (problem.dx) results.push_back(near(name + " dx", fast->dx, expected.dx, kTolerance<T>));
  // Exact: a copy of dy or 0.
  if (problem.dresidual) {
    results.push_back(near(name + " dresidual", fast->dresidual, expected.dresidual, 0.0));
  }
  if (problem.dweight) {
    results.push_back(near(name + " dweight", fast->dweight, expected.dweight, kOfParameters, sum_scale));
  }
  if (problem.dbias)
    results.push_back(near(name + " dbias", fast->dbias, expected.dbias, kOfParameters, sum_scale));
  return all(results);
}

template <typename T>
AssertionResult backward_agrees(const Case& c, const ParallelFor& parallel_for, bool frozen, Arrays<T>* fast,
                                Arrays<double>* expected) {
  Backward<double> specified = backward_problem(c, *expected);
  specified.frozen = frozen;
  specified.dresidual = expected->dresidual.data();
  reference::backward(specified);

  Backward<T> full = backward_problem(c, *fast);
  full.frozen = frozen;
  // A copy with nothing behind it, so that AddressSanitizer detects reads past the end.
  Buffer<uint8_t> mask(fast->mask.size(), fast->mask.misalignment(), Buffer<uint8_t>::Use::kInput);
  std::copy_n(fast->mask.data(), mask.size(), mask.data());
  if (full.mask != nullptr) full.mask = mask.data();
  Backward<T> parameters_only = full;
  parameters_only.dx = parameters_only.dresidual = nullptr;
  Backward<T> input_only = full;
  input_only.dweight = input_only.dbias = nullptr;
  input_only.dresidual = nullptr;
  Backward<T> residual_only = full;
  residual_only.dx = nullptr;
  residual_only.dweight = residual_only.dbias = nullptr;
  // Legal without a residual too, but not where a mask is missing.
  if (c.activation == Activation::kNone) residual_only.dresidual = fast->dresidual.data();
  Backward<T> without_weight = full;
  without_weight.dweight = nullptr;
  Backward<T> without_bias = full;
  without_bias.dbias = nullptr;

  const std::string name = frozen ? "frozen backward" : "backward";
  return all({gradients_agree(name, full, parallel_for, fast, *expected),
              gradients_agree(name + " of the parameters", parameters_only, parallel_for, fast, *expected),
              gradients_agree(name + " of the input", input_only, parallel_for, fast, *expected),
              gradients_agree(name + " of the residual", residual_only, parallel_for, fast, *expected),
              gradients_agree(name + " without dweight", without_weight, parallel_for, fast, *expected),
              gradients_agree(name + " without dbias", without_bias, parallel_for, fast, *expected)});
}

template <typename T>
AssertionResult inference_agrees(const Case& c, const ParallelFor& parallel_for, Arrays<T>* fast,
                                 Arrays<double>* expected) {
  fast->y.forget();
  kernels::inference(inference_problem(c, *fast), parallel_for);
  reference::inference(inference_problem(c, *expected));
  reference::backward(inference_backward_problem(c, *expected));
  return all({near("inference y", fast->y, expected->y, kTolerance<T>),
              gradients_agree("inference backward", inference_backward_problem(c, *fast), parallel_for, fast,
                              *expected)});
}

}  // namespace

template <typename T>
AssertionResult agrees(const Case& c, const ParallelFor& parallel_for) {
  Arrays<T> fast = draw_arrays<T>(c);
  Arrays<double> expected = widen(c, fast);
  silence_uncertain_masks(c, &fast, &expected);
  AssertionResult result = all({forward_agrees(c, parallel_for, &fast, &expected),
                                backward_agrees(c, parallel_for, false, &fast, &expected),
                                backward_agrees(c, parallel_for, true, &fast, &expected),
                                inference_agrees(c, parallel_for, &fast, &expected)});
  if (!result) result << "\n  in " << describe(c);
  return result;
}

template AssertionResult agrees<float>(const Case&, const ParallelFor&);
template AssertionResult agrees<double>(const Case&, const ParallelFor&);
template AssertionResult agrees<BFloat16>(const Case&, const ParallelFor&);

}  // namespace renorm::test
