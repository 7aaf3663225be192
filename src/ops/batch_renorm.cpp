// Schemas, and the public functions that call them through the dispatcher.
#include "ops/batch_renorm.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <renorm/ops/batch_renorm.h>
#include <torch/library.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR >= 2
#define RENORM_TAGS \
  , { at::Tag::pt2_compliant_tag }
#else
#define RENORM_TAGS
#endif

TORCH_LIBRARY(renorm, m) {
  m.def(
      "batch_renorm(Tensor input, Tensor? weight=None, Tensor? bias=None, Tensor? running_mean=None, "
      "Tensor? running_std=None, float eps=1e-05, float r_max=1.0, float d_max=0.0, int group_size=0, "
      "int grouping=0, int activation=0) -> (Tensor output, Tensor batch_mean, Tensor batch_mean_low, "
      "Tensor batch_std, Tensor r, Tensor d)" RENORM_TAGS);
  m.def(
      "batch_renorm_backward(Tensor grad_output, Tensor input, Tensor? weight, Tensor? bias, Tensor "
      "batch_mean, "
      "Tensor? batch_mean_low, Tensor batch_std, Tensor? r, Tensor? d, int group_size, int grouping, "
      "int activation, bool frozen, bool[3] output_mask) -> (Tensor, Tensor, Tensor)" RENORM_TAGS);
  m.def(
      "batch_renorm_inference(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, "
      "Tensor running_std, int activation=0) -> Tensor" RENORM_TAGS);
}

namespace renorm::ops {
namespace {

template <typename Function>
auto typed(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

}  // namespace

ForwardTensors call_batch_renorm(const at::Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, const OptionalTensor& running_mean,
                                 const OptionalTensor& running_std, const BatchRenormArguments& arguments) {
  static const auto op = typed<decltype(flat_forward<call_batch_renorm>)>("renorm::batch_renorm");
  return op.call(input, weight, bias, running_mean, running_std, arguments.eps, arguments.r_max,
                 arguments.d_max, arguments.group_size, static_cast<int64_t>(arguments.grouping),
                 static_cast<int64_t>(arguments.activation));
}

BackwardTensors call_batch_renorm_backward(const BackwardArguments& a) {
  static const auto op =
      typed<decltype(flat_backward<call_batch_renorm_backward>)>("renorm::batch_renorm_backward");
  return op.call(a.grad_output, a.input, a.weight, a.bias, a.batch_mean, a.batch_mean_low, a.batch_std, a.r,
                 a.d, a.group_size, static_cast<int64_t>(a.grouping), static_cast<int64_t>(a.activation),
                 a.frozen, a.output_mask);
}

at::Tensor call_batch_renorm_inference(const at::Tensor& input, const OptionalTensor& weight,
                                       const OptionalTensor& bias, const at::Tensor& running_mean,
                                       const at::Tensor& running_std, int64_t activation) {
  static const auto op = typed<decltype(call_batch_renorm_inference)>("renorm::batch_renorm_inference");
  return op.call(input, weight, bias, running_mean, running_std, activation);
}

BatchRenormResult batch_renorm(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                               const at::Tensor& running_mean, const at::Tensor& running_std,
                               const BatchRenormArguments& arguments) {
  auto [output, batch_mean, batch_mean_low, batch_std, r, d] = call_batch_renorm(
      input, optional(weight), optional(bias), optional(running_mean), optional(running_std), arguments);
  return {std::move(output),    std::move(batch_mean), std::move(batch_mean_low),
          std::move(batch_std), std::move(r),          std::move(d)};
}

at::Tensor batch_renorm_inference(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                                  const at::Tensor& running_mean, const at::Tensor& running_std,
                                  Activation activation) {
  return call_batch_renorm_inference(input, optional(weight), optional(bias), running_mean, running_std,
                                     static_cast<int64_t>(activation));
}

}  // namespace renorm::ops
