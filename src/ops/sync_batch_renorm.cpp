// Schemas of the operators for a group that is divided among processes, and the public functions that call
// them through the dispatcher.
#include "ops/sync_batch_renorm.h"

#include <renorm/ops/sync_batch_renorm.h>
#include <torch/library.h>

#include "ops/schema.h"

#define RENORM_GROUP "Tensor batch_mean, Tensor? batch_mean_low, Tensor batch_std, Tensor? r, Tensor? d, "

TORCH_LIBRARY_FRAGMENT(renorm, m) {
  m.def("batch_renorm_statistics(Tensor input) -> Tensor" RENORM_TAGS);
  m.def(
      "batch_renorm_merge(Tensor statistics, Tensor? running_mean, Tensor? running_std, Tensor? step, "
      "int hold, float r_max, int r_step, float d_max, int d_step, float eps, ScalarType dtype) "
      "-> (Tensor batch_mean, Tensor batch_mean_low, Tensor batch_std, Tensor r, Tensor d, "
      "Tensor count)" RENORM_TAGS);
  m.def("batch_renorm_apply(Tensor input, Tensor? weight, Tensor? bias, " RENORM_GROUP
        "str activation=\"none\") -> Tensor" RENORM_TAGS);
  m.def(
      "batch_renorm_backward_sums(Tensor grad_output, Tensor input, Tensor? weight, Tensor? "
      "bias, " RENORM_GROUP "str activation=\"none\") -> Tensor" RENORM_TAGS);
  m.def(
      "batch_renorm_backward_apply(Tensor grad_output, Tensor input, Tensor? weight, Tensor? "
      "bias, " RENORM_GROUP "Tensor sums, Tensor count, str activation=\"none\") -> Tensor" RENORM_TAGS);
}

namespace renorm::ops {
namespace {

// The tensors of a group as optional arguments.
struct Optionals {
  OptionalTensor weight, bias, low, r, d;

  Optionals(const at::Tensor& w, const at::Tensor& b, const GroupStatistics& group)
      : weight(optional(w)),
        bias(optional(b)),
        low(optional(group.batch_mean_low)),
        r(optional(group.r)),
        d(optional(group.d)) {}

  ApplyArguments arguments(const char* op, const at::Tensor& input, const GroupStatistics& group,
                           Activation activation) const {
    return {op, input, weight, bias, group.batch_mean, low, group.batch_std, r, d, activation};
  }
};

}  // namespace

at::Tensor call_statistics(const at::Tensor& input) {
  static const auto op = typed<decltype(call_statistics)>(kStatisticsOp);
  return op.call(input);
}

MergeTensors call_merge(const MergeArguments& a) {
  static const auto op = typed<decltype(flat_merge<call_merge>)>(kMergeOp);
  const ClipRamp& clip = a.limits.clip;
  return op.call(a.statistics, a.running_mean, a.running_std, a.limits.step, clip.hold, clip.r_max,
                 clip.r_step, clip.d_max, clip.d_step, a.eps, a.dtype);
}

at::Tensor call_apply(const ApplyArguments& a) {
  static const auto op = typed<decltype(flat_apply<call_apply>)>(kApplyOp);
  return op.call(a.input, a.weight, a.bias, a.batch_mean, a.batch_mean_low, a.batch_std, a.r, a.d,
                 name_of(a.activation));
}

at::Tensor call_backward_sums(const SumsArguments& a) {
  static const auto op = typed<decltype(flat_backward_sums<call_backward_sums>)>(kSumsOp);
  const ApplyArguments& f = a.forward;
  return op.call(a.grad_output, f.input, f.weight, f.bias, f.batch_mean, f.batch_mean_low, f.batch_std, f.r,
                 f.d, name_of(f.activation));
}

at::Tensor call_backward_apply(const GradientArguments& a) {
  static const auto op = typed<decltype(flat_backward_apply<call_backward_apply>)>(kGradientOp);
  const ApplyArguments& f = a.forward;
  return op.call(a.grad_output, f.input, f.weight, f.bias, f.batch_mean, f.batch_mean_low, f.batch_std, f.r,
                 f.d, a.sums, a.count, name_of(f.activation));
}

at::Tensor batch_renorm_statistics(const at::Tensor& input) { return call_statistics(input); }

GroupStatistics batch_renorm_merge(const at::Tensor& statistics, const at::Tensor& running_mean,
                                   const at::Tensor& running_std, const at::Tensor& step,
                                   const ClipRamp& clip, double eps, at::ScalarType dtype) {
  auto [mean, low, std, r, d, count] = call_merge({statistics, optional(running_mean), optional(running_std),
                                                   ClipSource{clip, optional(step)}, eps, dtype});
  return {std::move(mean), std::move(low), std::move(std), std::move(r), std::move(d), std::move(count)};
}

at::Tensor batch_renorm_apply(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                              const GroupStatistics& group, Activation activation) {
  const Optionals optionals(weight, bias, group);
  return call_apply(optionals.arguments(kApplyOp, input, group, activation));
}

at::Tensor batch_renorm_backward_sums(const at::Tensor& grad_output, const at::Tensor& input,
                                      const at::Tensor& weight, const at::Tensor& bias,
                                      const GroupStatistics& group, Activation activation) {
  const Optionals optionals(weight, bias, group);
  return call_backward_sums({grad_output, optionals.arguments(kSumsOp, input, group, activation)});
}

at::Tensor batch_renorm_backward_apply(const at::Tensor& grad_output, const at::Tensor& input,
                                       const at::Tensor& weight, const at::Tensor& bias,
                                       const GroupStatistics& group, const at::Tensor& sums,
                                       Activation activation) {
  const Optionals optionals(weight, bias, group);
  return call_backward_apply(
      {grad_output, optionals.arguments(kGradientOp, input, group, activation), sums, group.count});
}

}  // namespace renorm::ops
