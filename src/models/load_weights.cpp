#include "models/load_weights.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "models/torchvision_names.h"

namespace renorm::models {
namespace {

using Tensors = std::map<std::string, torch::Tensor>;

// A tensor of the model and its place in the file.
struct Target {
  std::string name;
  torch::Tensor tensor;  // undefined: a weight that the model fixes at 1
  TorchvisionTensor source;
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool is_counter(const std::string& name) { return ends_with(name, ".num_batches_tracked"); }

std::string shape_text(at::IntArrayRef shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// Everything that a file must have, by our own names.
std::vector<Target> targets_of(const Classifier& model) {
  std::vector<Target> targets;
  std::set<std::string> fixed;
  const auto parameters = model.named_parameters();
  for (const auto& item : parameters) {
    targets.push_back({item.key(), item.value(), {item.key(), 0.0}});
    if (!ends_with(item.key(), ".norm.bias")) continue;
    const std::string weight = item.key().substr(0, item.key().size() - 4) + "weight";
    if (!parameters.contains(weight)) fixed.insert(weight);
  }
  for (const auto& item : model.named_buffers()) {
    if (is_counter(item.key()) || fixed.count(item.key()) != 0) continue;
    targets.push_back({item.key(), item.value(), {item.key(), 0.0}});
  }
  for (const std::string& weight : fixed) targets.push_back({weight, {}, {weight, 0.0}});
  return targets;
}

int64_t count_found(const std::vector<Target>& targets, const Tensors& tensors) {
  return std::count_if(targets.begin(), targets.end(),
                       [&](const Target& target) { return tensors.count(target.source.name) != 0; });
}

class Loading {
 public:
  Loading(const Classifier& model, const Tensors& tensors, const std::string& file)
      : tensors_(tensors), file_(file), targets_(targets_of(model)) {
    choose_names();
    find_other_classes(model);
    for (const Target& target : targets_) check(target);
    for (const auto& item : tensors_) check_expected(item.first);
  }

  LoadedWeights apply() {
    LoadedWeights result;
    for (Target& target : targets_) {
      if (left_.count(target.name) != 0) {
        result.left.push_back(target.name);
      } else if (target.tensor.defined()) {
        target.tensor.copy_(value_of(target));
        ++result.loaded;
      }
    }
    return result;
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
    throw DataError(fmt::format("{}: tensor '{}' {}", printable(file_), printable(name), what));
  }

  // Convolutions of Inception have the same names in both; those of norms differ.
  void choose_names() {
    std::vector<Target> theirs = targets_;
    for (Target& target : theirs) target.source = torchvision_tensor(target.name);
    const int64_t own = count_found(targets_, tensors_);
    const int64_t torchvision = count_found(theirs, tensors_);
    if (own == 0 && torchvision == 0) {
      throw DataError(
          fmt::format("{}: has no tensor of this model, neither by renorm's names nor by torchvision's",
                      printable(file_)));
    }
    if (torchvision > own) targets_ = std::move(theirs);
  }

  const torch::Tensor& stored(const Target& target) const {
    const auto found = tensors_.find(target.source.name);
    if (found == tensors_.end()) {
      refuse(target.source.name, ends_with(target.name, ".norm.weight")
                                     ? "is missing; use it without --norm-scale if its norms have no weight"
                                     : "is missing; the file must hold the weights of the same model, with "
                                       "norms that are not folded");
    }
    return found->second;
  }

  // Both tensors of a classifier that differs only in its number of rows.
  void find_other_classes(const Classifier& model) {
    for (const auto& module : model.named_modules("", /*include_self=*/false)) {
      const auto* linear = module.value()->as<torch::nn::LinearImpl>();
      if (linear == nullptr) continue;
      const Target& weight = target(module.key() + ".weight");
      const Target& bias = target(module.key() + ".bias");
      const torch::Tensor& rows = stored(weight);
      if (rows.dim() != 2 || rows.size(1) != linear->weight.size(1)) continue;
      if (rows.size(0) == linear->weight.size(0)) continue;
      check_values(bias, {rows.size(0)});
      check_values(weight, rows.sizes());
      left_.insert({weight.name, bias.name});
    }
  }

  const Target& target(const std::string& name) const {
    return *std::find_if(targets_.begin(), targets_.end(), [&](const Target& t) { return t.name == name; });
  }

  void check(const Target& target) {
    if (target.tensor.defined()) {
      if (left_.count(target.name) == 0) check_values(target, target.tensor.sizes());
    } else if (tensors_.count(target.source.name) != 0 && !stored(target).eq(1).all().item<bool>()) {
      refuse(target.source.name,
             "must be all 1, because this model's norms have no weight; use --norm-scale");
    }
    expected_.insert(target.source.name);
  }

  void check_values(const Target& target, at::IntArrayRef shape) const {
    const torch::Tensor& values = stored(target);
    const std::string& name = target.source.name;
    if (!values.is_floating_point()) {
      refuse(name, fmt::format("must be of a floating dtype, got {}", c10::toString(values.scalar_type())));
    }
    if (values.sizes() != shape) {
      refuse(name, fmt::format("has shape {}, expected {}", shape_text(values.sizes()), shape_text(shape)));
    }
    // In the dtype of the model: a double may become infinite or 0.
    if (!values.to(torch::kFloat).isfinite().all().item<bool>())
      refuse(name, "has a value that is not finite");
    if (ends_with(name, ".running_var") && values.lt(0).any().item<bool>())
      refuse(name, "has a value below 0");
    if (ends_with(name, ".running_std") && values.to(torch::kFloat).le(0).any().item<bool>()) {
      refuse(name, "has a value that is not above 0");
    }
  }

  void check_expected(const std::string& name) const {
    if (expected_.count(name) != 0 || is_counter(name)) return;
    const auto auxiliary = [](const std::string& text) { return text.rfind("AuxLogits.", 0) == 0; };
    const bool has_head = std::any_of(expected_.begin(), expected_.end(), auxiliary);
    if (!auxiliary(name) || has_head)
      refuse(name, "is not expected; the file must hold the weights of the same model");
  }

  torch::Tensor value_of(const Target& target) const {
    const torch::Tensor& values = stored(target);
    if (target.source.eps == 0.0) return values;
    return values.to(torch::kDouble).add(target.source.eps).sqrt();
  }

  const Tensors& tensors_;
  const std::string& file_;
  std::vector<Target> targets_;
  std::set<std::string> left_;      // our names
  std::set<std::string> expected_;  // the file's names
};

}  // namespace

LoadedWeights load_weights(Classifier& model, const Tensors& tensors, const std::string& file) {
  const torch::NoGradGuard no_grad;
  return Loading(model, tensors, file).apply();
}

}  // namespace renorm::models
