#include "export/portable_model.h"

#include <ATen/Functions.h>
#include <renorm/nn/convert.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/utils.h>

#include <unordered_map>
#include <vector>

#include "base/errors.h"
#include "models/blocks.h"
#include "train/tensors.h"

namespace renorm::exporting {
namespace {

using models::Classifier;
using models::ConvNormImpl;

class PlainNormImpl : public torch::nn::Module {
 public:
  // Without `scale` the weight is a buffer of ones, because other programs require a weight.
  PlainNormImpl(int64_t channels, Activation activation, bool scale)
      : weight(scale ? register_parameter("weight", torch::ones({channels}))
                     : register_buffer("weight", torch::ones({channels}))),
        bias(register_parameter("bias", torch::zeros({channels}))),
        running_mean(register_buffer("running_mean", torch::zeros({channels}))),
        running_var(register_buffer("running_var", torch::ones({channels}))),
        activation_(activation) {}

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = torch::batch_norm(x, weight, bias, running_mean, running_var, /*training=*/false,
                                        /*momentum=*/0.0, /*eps=*/0.0, /*cudnn_enabled=*/true);
    return activation_ == Activation::kRelu ? y.relu_() : y;
  }

  torch::Tensor weight;
  torch::Tensor bias;
  torch::Tensor running_mean;
  torch::Tensor running_var;

 private:
  Activation activation_;
};

// The rest of a norm that was folded.
class ActivationOnlyImpl : public torch::nn::Module {
 public:
  explicit ActivationOnlyImpl(Activation activation) : activation_(activation) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return activation_ == Activation::kRelu ? x.relu_() : x;  // no other tensor shares a convolution's output
  }

 private:
  Activation activation_;
};

template <typename Norm>
torch::nn::AnyModule any_norm(std::shared_ptr<Norm> norm) {
  return torch::nn::AnyModule(std::move(norm));
}

std::vector<ConvNormImpl*> conv_norms(const Classifier& model) {
  std::vector<ConvNormImpl*> found;
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (auto* unit = dynamic_cast<ConvNormImpl*>(module.get())) found.push_back(unit);
  }
  return found;
}

// Batch Renorm without activation whose inference is that of `norm`, which comes from models/norm.h.
BatchRenorm2d as_batch_renorm(const torch::nn::Module& norm) {
  const auto* renorm = dynamic_cast<const BatchRenorm2dImpl*>(&norm);
  if (renorm == nullptr) {
    const auto children = norm.children();
    const auto* native =
        children.empty() ? nullptr : dynamic_cast<const torch::nn::BatchNorm2dImpl*>(children[0].get());
    TORCH_INTERNAL_ASSERT(native != nullptr, "unknown norm: ", norm.name());
    BatchRenorm2d result(BatchRenormOptions(native->options.num_features()));
    result->weight.copy_(native->weight);
    result->bias.copy_(native->bias);
    result->running_mean.copy_(native->running_mean);
    result->running_std.copy_(native->running_var.to(torch::kDouble).add(native->options.eps()).sqrt());
    return result;
  }
  BatchRenorm2d result(BatchRenormOptions(renorm->options.num_features()));
  if (renorm->weight.defined()) result->weight.copy_(renorm->weight);
  if (renorm->bias.defined()) result->bias.copy_(renorm->bias);
  result->running_mean.copy_(renorm->running_mean);
  result->running_std.copy_(renorm->running_std);
  return result;
}

// nullptr: the model has another norm.
const models::GroupNormImpl* group_norm_of(const std::vector<ConvNormImpl*>& units) {
  return units.empty() ? nullptr : dynamic_cast<const models::GroupNormImpl*>(units[0]->norm.ptr().get());
}

bool has_scale(const torch::nn::Module& norm) {
  return norm.named_parameters(/*recurse=*/false).contains("weight");
}

void set_norm(const torch::nn::Module& from, PlainNormImpl* to) {
  const BatchRenorm2d norm = as_batch_renorm(from);
  to->weight.copy_(norm->weight);
  to->bias.copy_(norm->bias);
  to->running_mean.copy_(norm->running_mean);
  to->running_var.copy_(norm->running_std.to(torch::kDouble).square());
}

void set_convolution(const torch::nn::Conv2d& conv, ConvNormImpl* unit) {
  unit->replace_module("conv", conv);
  unit->conv = conv;
}

// The values of all tensors that have the same name in both.
void copy_tensors_by_name(const Classifier& from, const Classifier& to) {
  std::unordered_map<std::string, torch::Tensor> values;
  for (const train::NamedTensor& named : train::named_state(from)) values[named.name] = named.tensor;
  for (train::NamedTensor& named : train::named_state(to)) {
    const auto value = values.find(named.name);
    if (value != values.end()) named.tensor.copy_(value->second);
  }
}

std::shared_ptr<Classifier> made_from(const Blueprint& blueprint, const models::MakeNorm& make_norm) {
  auto model = models::make_model(blueprint.model, blueprint.input, make_norm);
  model->eval();
  return model;
}

std::shared_ptr<Classifier> without_norms(const Blueprint& blueprint) {
  return made_from(blueprint, [](int64_t /*channels*/, Activation activation) {
    return any_norm(std::make_shared<ActivationOnlyImpl>(activation));
  });
}

// A norm that is not part of a unit would be lost.
void check_units(const Blueprint& blueprint, size_t units) {
  size_t norms = 0;
  made_from(blueprint, [&norms](int64_t /*channels*/, Activation activation) {
    ++norms;
    return any_norm(std::make_shared<ActivationOnlyImpl>(activation));
  });
  if (norms == units) return;
  throw UsageError(
      "the model has norms that do not follow a convolution, as lstm has; it can be exported to .safetensors "
      "without --fold");
}

}  // namespace

std::shared_ptr<Classifier> with_plain_norms(const Classifier& model, const Blueprint& blueprint) {
  const torch::NoGradGuard no_grad;
  const std::vector<ConvNormImpl*> from = conv_norms(model);
  check_units(blueprint, from.size());
  const bool scale = !from.empty() && has_scale(*from[0]->norm.ptr());
  // Group normalization is an operator of LibTorch's own.
  if (const auto* group = group_norm_of(from)) {
    const auto result = made_from(blueprint, models::group_norm(group->eps(), scale));
    copy_tensors_by_name(model, *result);
    return result;
  }
  const auto result = made_from(blueprint, [scale](int64_t channels, Activation activation) {
    return any_norm(std::make_shared<PlainNormImpl>(channels, activation, scale));
  });
  copy_tensors_by_name(model, *result);
  const std::vector<ConvNormImpl*> to = conv_norms(*result);
  for (size_t i = 0; i < to.size(); ++i) {
    set_norm(*from.at(i)->norm.ptr(), &to[i]->norm.get<PlainNormImpl>());
  }
  return result;
}

std::shared_ptr<Classifier> folded(const Classifier& model, const Blueprint& blueprint) {
  const torch::NoGradGuard no_grad;
  const std::vector<ConvNormImpl*> from = conv_norms(model);
  check_units(blueprint, from.size());
  if (group_norm_of(from) != nullptr) {
    throw UsageError("group normalization has no averages that could be folded; leave out --fold");
  }
  const auto result = without_norms(blueprint);
  copy_tensors_by_name(model, *result);
  const std::vector<ConvNormImpl*> to = conv_norms(*result);
  for (size_t i = 0; i < to.size(); ++i) {
    set_convolution(fold(from.at(i)->conv, as_batch_renorm(*from[i]->norm.ptr())), to[i]);
  }
  result->eval();
  return result;
}

std::shared_ptr<Classifier> blank_folded(const Blueprint& blueprint) {
  const auto result = without_norms(blueprint);
  for (ConvNormImpl* unit : conv_norms(*result)) {
    set_convolution(fold(unit->conv, BatchRenorm2d(unit->conv->weight.size(0))), unit);
  }
  result->eval();
  return result;
}

}  // namespace renorm::exporting
