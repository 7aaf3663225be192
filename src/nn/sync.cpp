#include "nn/sync.h"

#include <renorm/nn/batch_renorm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "ops/batch_renorm.h"

namespace renorm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What the backward pass needs besides tensors.
struct Shared : torch::CustomClassHolder {
  Processes processes;
  Activation activation;
  std::string who;
  bool wants_input;
  bool wants_weight;
  bool wants_bias;
};
constexpr const char* kShared = "shared";

enum Saved : size_t { kInput, kWeight, kBias, kBatchMean, kBatchMeanLow, kBatchStd, kR, kD, kCount };

struct NormalizeShare : torch::autograd::Function<NormalizeShare> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const ops::OptionalTensor& weight, const ops::OptionalTensor& bias,
                            const ops::GroupStatistics* group, const c10::intrusive_ptr<Shared>* shared) {
    at::AutoDispatchBelowADInplaceOrView below;
    const at::Tensor w = ops::value_or_undefined(weight);
    const at::Tensor b = ops::value_or_undefined(bias);
    context->save_for_backward({input, w, b, group->batch_mean, group->batch_mean_low, group->batch_std,
                                group->r, group->d, group->count});
    context->saved_data[kShared] = c10::IValue::make_capsule(*shared);
    return ops::batch_renorm_apply(input, w, b, *group, (*shared)->activation);
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const auto capsule = context->saved_data[kShared].toCapsule();
    const auto& shared = static_cast<const Shared&>(*capsule);
    TORCH_CHECK(!at::GradMode::is_enabled(), shared.who,
                ": create_graph is not supported with statistics over several processes");
    const variable_list saved = context->get_saved_variables();
    const ops::GroupStatistics group{saved[kBatchMean], saved[kBatchMeanLow], saved[kBatchStd], saved[kR],
                                     saved[kD],         saved[kCount]};
    const at::Tensor& dy = grad_outputs[0];
    at::Tensor sums = ops::batch_renorm_backward_sums(dy, saved[kInput], saved[kWeight], saved[kBias], group,
                                                      shared.activation);
    variable_list result(5);  // the pointers have no gradient
    if (shared.wants_weight) {
      const at::Tensor r_over_std = group.r.to(at::kDouble) / group.batch_std.to(at::kDouble);
      result[1] = (r_over_std[0] * sums[1] + group.d[0].to(at::kDouble) * sums[0]).to(group.r.scalar_type());
    }
    if (shared.wants_bias) result[2] = sums[0].to(group.r.scalar_type(), false, /*copy=*/true);
    if (shared.wants_input) {
      shared.processes.all_reduce(sums);
      result[0] = ops::batch_renorm_backward_apply(dy, saved[kInput], saved[kWeight], saved[kBias], group,
                                                   sums, shared.activation);
    }
    return result;
  }
};

}  // namespace

torch::Tensor gather_statistics(const torch::Tensor& input, const Processes& processes) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor own = ops::batch_renorm_statistics(input);
  torch::Tensor rows = torch::zeros({processes.count, own.size(0)}, own.options());
  rows[processes.rank].copy_(own);
  processes.all_reduce(rows);
  return rows;
}

torch::Tensor normalize_share(const torch::Tensor& input, const torch::Tensor& weight,
                              const torch::Tensor& bias, const ops::GroupStatistics& group,
                              Activation activation, const Processes& processes, const std::string& who) {
  const auto shared = c10::make_intrusive<Shared>();
  const auto wants = [](const torch::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  shared->processes = processes;
  shared->activation = activation;
  shared->who = who;
  shared->wants_input = wants(input);
  shared->wants_weight = wants(weight);
  shared->wants_bias = wants(bias);
  return NormalizeShare::apply(input, ops::optional(weight), ops::optional(bias), &group, &shared);
}

// Equal statistics in all processes give equal averages and equal errors.
torch::Tensor BatchRenormLayer::train_on_share(const torch::Tensor& input, const Ending& ending) {
  const Processes& processes = options.processes();
  const torch::Tensor rows = gather_statistics(input, processes);
  const auto type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const ops::GroupStatistics group = ops::batch_renorm_merge(
      rows, running_mean, running_std, num_batches_tracked, options.clip().constants(), options.eps(), type);
  const double count = group.count.is_cpu() ? group.count.item<double>() : 2.0;  // others are not read
  TORCH_CHECK(count != 1.0, who(),
              ": the batches of all processes must have more than one value per channel together, got one");
  const bool fused = !ending.residual.defined();
  torch::Tensor output = normalize_share(input, weight, bias, group,
                                         fused ? ending.activation : Activation::kNone, processes, who());
  if (!fused) output = output + ending.residual;
  if (!fused && ending.activation == Activation::kRelu) output = output.relu();
  if (count > 0.0) {
    collect({output, group.batch_mean, group.batch_mean_low, group.batch_std, group.r, group.d, {}});
  }
  return output;
}

}  // namespace renorm
