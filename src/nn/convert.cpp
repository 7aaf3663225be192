#include "renorm/nn/convert.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Type.h>
#include <fnmatch.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <vector>

namespace renorm {
namespace {

// A running_std rounded to float may be this much (relative) below the sqrt(eps) it represents.
constexpr double kRoundingSlack = 4.0 * std::numeric_limits<float>::epsilon();

at::Tensor as_double(const at::Tensor& tensor) { return tensor.detach().to(at::kCPU, at::kDouble); }

// Copies a parameter. Does nothing if `from` is undefined.
void copy_parameter(const at::Tensor& from, at::Tensor* to) {
  if (!from.defined()) return;
  to->copy_(from);
  to->set_requires_grad(from.requires_grad());
}

// Moves `layer` to the device and dtype of `reference`. Does nothing if that is undefined.
template <typename Layer>
void match(const at::Tensor& reference, Layer* layer) {
  if (reference.defined()) (*layer)->to(reference.device(), reference.scalar_type());
}

template <typename Renorm, typename Norm>
Renorm renorm_from(const Norm& norm, const ClipSchedule& clip, StepOrigin step) {
  const torch::NoGradGuard no_grad;
  // Batchnorm may have an eps of 0. Batch Renorm divides by running_std, which must not be 0.
  const double given = norm->options.eps();
  const double eps = static_cast<float>(given) > 0.0F ? given : std::numeric_limits<float>::min();
  // The tensors count, not the options: those may have changed since the layer was built.
  const bool tracks = norm->running_mean.defined();
  const at::Tensor& held = tracks ? norm->running_mean : norm->weight;
  Renorm layer(BatchRenormOptions(held.defined() ? held.size(0) : norm->options.num_features())
                   .eps(eps)
                   .momentum(norm->options.momentum())
                   .affine(norm->weight.defined())
                   .track_running_stats(tracks)
                   .clip(clip));
  match(held, &layer);
  copy_parameter(norm->weight, &layer->weight);
  copy_parameter(norm->bias, &layer->bias);
  if (tracks) {
    layer->running_mean.copy_(norm->running_mean);
    layer->running_std.copy_(as_double(norm->running_var).add(eps).sqrt());
    const bool keep = step == StepOrigin::kKeep || !norm->options.momentum().has_value();
    if (keep) layer->num_batches_tracked.copy_(norm->num_batches_tracked);
  }
  // Batchnorm reads this option at each forward.
  layer->use_batch_statistics(tracks && !norm->options.track_running_stats());
  layer->train(norm->is_training());
  return layer;
}

at::Tensor running_var(const at::Tensor& running_std, double eps) {
  const at::Tensor std = as_double(running_std);
  const int64_t channel = std.argmin().item<int64_t>();
  const double min_std = std[channel].item<double>();
  TORCH_CHECK(min_std >= std::sqrt(eps) * (1.0 - kRoundingSlack),
              "renorm::to_batch_norm: running_std of channel ", channel,
              " must be >= sqrt(eps) = ", std::sqrt(eps), ", because batchnorm divides by no less, got ",
              min_std);
  return std.square().sub(eps).clamp_min(0.0);
}

void check_relu(const char* function, const BatchRenormLayer& layer, FusedRelu relu) {
  TORCH_CHECK(
      relu == FusedRelu::kDrop || layer.options.activation() == Activation::kNone, function,
      ": norm must have activation kNone, got kRelu; give FusedRelu::kDrop and apply a ReLU after the "
      "result");
}

template <typename Norm, typename Renorm>
Norm norm_from(const Renorm& layer, FusedRelu relu) {
  check_relu("renorm::to_batch_norm", *layer, relu);
  const torch::NoGradGuard no_grad;
  const double eps = layer->options.eps();
  const bool tracks = layer->running_mean.defined();
  Norm norm(torch::nn::BatchNormOptions(layer->channels())
                .eps(eps)
                .momentum(layer->options.momentum())
                .affine(layer->bias.defined())
                .track_running_stats(tracks));
  match(tracks ? layer->running_mean : layer->bias, &norm);
  copy_parameter(layer->weight, &norm->weight);
  copy_parameter(layer->bias, &norm->bias);
  if (norm->weight.defined() && !layer->weight.defined()) norm->weight.set_requires_grad(false);
  if (tracks) {
    norm->running_mean.copy_(layer->running_mean);
    norm->running_var.copy_(running_var(layer->running_std, eps));
    // Batchnorm's `to` has converted the counter to a floating dtype.
    norm->num_batches_tracked.set_data(layer->num_batches_tracked.clone());
  }
  norm->train(layer->is_training());
  return norm;
}

// Restores the global random state: constructing a layer draws initial weights.
class KeepRandomState {
 public:
  KeepRandomState() : state_(generator().get_state()) {}
  ~KeepRandomState() { generator().set_state(state_); }
  KeepRandomState(const KeepRandomState&) = delete;
  KeepRandomState& operator=(const KeepRandomState&) = delete;

 private:
  static at::Generator generator() { return at::detail::getDefaultCPUGenerator(); }

  at::Tensor state_;
};

void check_foldable(const BatchRenormLayer& norm, int64_t channels) {
  TORCH_CHECK(norm.running_mean.defined(),
              "renorm::fold: norm must have averages, got track_running_stats = false");
  TORCH_CHECK(norm.channels() == channels, "renorm::fold: norm must have the layer's ", channels,
              " channels, got ", norm.channels());
}

// A copy of the layer that has a bias. clone() registers the parameters that the options require.
template <typename Layer>
Layer copy_with_bias(const Layer& layer) {
  using Impl = typename Layer::ContainedType;
  const KeepRandomState keep_random_state;
  auto source = std::make_shared<Impl>(*layer);
  source->options.bias(true);
  const auto copy = std::dynamic_pointer_cast<Impl>(source->clone());
  copy->to(layer->weight.device(), layer->weight.scalar_type());
  return Layer(copy);
}

// norm(layer(x)) = scale * (W x + bias - running_mean) + norm's bias, with scale = norm's weight /
// running_std: the output channel is dimension 0 of W in every layer kind.
template <typename Layer>
Layer folded(const Layer& layer, const BatchRenormLayer& norm, FusedRelu relu) {
  check_relu("renorm::fold", norm, relu);
  check_foldable(norm, layer->weight.size(0));
  const torch::NoGradGuard no_grad;
  at::Tensor scale = as_double(norm.running_std).reciprocal();
  if (norm.weight.defined()) scale.mul_(as_double(norm.weight));
  at::Tensor bias = as_double(norm.running_mean).neg();
  if (layer->bias.defined()) bias.add_(as_double(layer->bias));
  bias.mul_(scale);
  if (norm.bias.defined()) bias.add_(as_double(norm.bias));

  Layer result = copy_with_bias(layer);
  std::vector<int64_t> per_output(layer->weight.dim(), 1);
  per_output[0] = -1;
  result->weight.copy_(as_double(layer->weight).mul(scale.view(per_output)));
  result->bias.copy_(bias);
  return result;
}

// A module that is to be replaced: where its parent holds it, and how.
struct Place {
  torch::nn::Module* parent;
  std::string name;  // in the parent
  std::string path;  // in the model
  std::shared_ptr<torch::nn::Module> module;
};

bool selected(const Selection& selection, const std::string& path) {
  const auto matches = [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), path.c_str(), /*flags=*/0) == 0;
  };
  return std::any_of(selection.include.begin(), selection.include.end(), matches) &&
         std::none_of(selection.exclude.begin(), selection.exclude.end(), matches);
}

template <class... Kinds>
bool is_any(const torch::nn::Module& module) {
  return (... || (dynamic_cast<const Kinds*>(&module) != nullptr));
}

// Whether `parent` is a container of LibTorch that holds `module` among its entries.
bool holds(torch::nn::Module& parent, const std::shared_ptr<torch::nn::Module>& module) {
  const auto among = [&module](auto& container, const auto& pointer_of) {
    return std::any_of(container.begin(), container.end(),
                       [&](auto& entry) { return pointer_of(entry) == module; });
  };
  if (auto* sequential = dynamic_cast<torch::nn::SequentialImpl*>(&parent)) {
    return among(*sequential, [](torch::nn::AnyModule& entry) { return entry.ptr(); });
  }
  if (auto* list = dynamic_cast<torch::nn::ModuleListImpl*>(&parent)) {
    return among(*list, [](const std::shared_ptr<torch::nn::Module>& entry) { return entry; });
  }
  if (auto* dict = dynamic_cast<torch::nn::ModuleDictImpl*>(&parent)) {
    return among(*dict, [](auto& entry) { return entry.value(); });
  }
  return false;
}

// Children of these kinds, each with its parent, once per path.
template <class... Kinds>
void find_places(torch::nn::Module& parent, const std::string& prefix, std::vector<Place>* places) {
  for (const auto& child : parent.named_children()) {
    const std::string path = prefix.empty() ? child.key() : prefix + "." + child.key();
    if (is_any<Kinds...>(*child.value())) {
      places->push_back({&parent, child.key(), path, child.value()});
    } else {
      find_places<Kinds...>(*child.value(), path, places);
    }
  }
}

// Throws if a selected place cannot get a new module.
template <class... Kinds>
void check_place(const char* function, const Place& place) {
  const torch::nn::Module& module = *place.module;
  TORCH_CHECK((... || (typeid(module) == typeid(Kinds))), function, ": '", place.path, "' is a ",
              c10::demangle(typeid(module).name()), ", a subclass that cannot be replaced; exclude it");
  const torch::nn::Module& parent = *place.parent;
  TORCH_CHECK(holds(*place.parent, place.module), function, ": '", place.path, "' is a member of ",
              c10::demangle(typeid(parent).name()),
              ", whose type only that class can change; change it there or exclude it");
}

// Puts `holder`'s module in the place of the old one, in the container and among the registered children.
template <class Holder>
void put(const Place& place, const Holder& holder) {
  if (auto* sequential = dynamic_cast<torch::nn::SequentialImpl*>(place.parent)) {
    for (torch::nn::AnyModule& entry : *sequential) {
      if (entry.ptr() == place.module) entry = torch::nn::AnyModule(holder);
    }
  } else if (auto* list = dynamic_cast<torch::nn::ModuleListImpl*>(place.parent)) {
    for (std::shared_ptr<torch::nn::Module>& entry : *list) {
      if (entry == place.module) entry = holder.ptr();
    }
  } else if (auto* dict = dynamic_cast<torch::nn::ModuleDictImpl*>(place.parent)) {
    for (auto& entry : *dict) {
      if (entry.value() == place.module) entry.value() = holder.ptr();
    }
  }
  place.parent->replace_module(place.name, holder);
}

// One replacement for the module, made by `make` from a holder of its own kind.
template <class... Holders, class Make>
std::function<void(const Place&)> replacement(const std::shared_ptr<torch::nn::Module>& module,
                                              const Make& make) {
  std::function<void(const Place&)> result;
  const auto try_one = [&](auto null_holder) {
    using Holder = decltype(null_holder);
    const auto found = std::dynamic_pointer_cast<typename Holder::ContainedType>(module);
    if (found == nullptr) return;
    result = [made = make(Holder(found))](const Place& place) { put(place, made); };
  };
  (try_one(Holders(nullptr)), ...);
  return result;
}

template <class... Kinds>
std::vector<Place> places_of(const char* function, torch::nn::Module& model, const Selection& selection) {
  TORCH_CHECK((!is_any<Kinds...>(model)), function,
              ": the model must contain the layers, got a single layer; use ",
              function == std::string("renorm::convert") ? "from_batch_norm" : "to_batch_norm");
  std::vector<Place> all;
  find_places<Kinds...>(model, "", &all);
  std::vector<Place> places;
  std::map<const torch::nn::Module*, std::string> others;  // paths that are not selected
  for (const Place& place : all) {
    if (selected(selection, place.path)) {
      places.push_back(place);
    } else {
      others.emplace(place.module.get(), place.path);
    }
  }
  for (const Place& place : places) {
    check_place<Kinds...>(function, place);
    const auto other = others.find(place.module.get());
    TORCH_CHECK(other == others.end(), function, ": '", place.path, "' is also '", other->second,
                "', which is not selected; select both or neither");
  }
  return places;
}

// Makes all replacements before the first one is put in place. A layer that occurs twice is replaced by one
// layer.
template <class... Holders, class Make>
std::vector<std::string> replace_all(const char* function, torch::nn::Module& model,
                                     const Selection& selection, const Make& make) {
  const std::vector<Place> places = places_of<typename Holders::ContainedType...>(function, model, selection);
  std::map<torch::nn::Module*, std::function<void(const Place&)>> replacements;
  for (const Place& place : places) {
    auto& entry = replacements[place.module.get()];
    if (entry) continue;
    try {
      entry = replacement<Holders...>(place.module, make);
    } catch (const c10::Error& error) {
      TORCH_CHECK(false, function, ": '", place.path, "': ", error.what_without_backtrace());
    }
  }
  std::vector<std::string> paths;
  for (const Place& place : places) {
    replacements[place.module.get()](place);
    paths.push_back(place.path);
  }
  return paths;
}

}  // namespace

BatchRenorm1d from_batch_norm(const torch::nn::BatchNorm1d& norm, const ClipSchedule& clip, StepOrigin step) {
  return renorm_from<BatchRenorm1d>(norm, clip, step);
}

BatchRenorm2d from_batch_norm(const torch::nn::BatchNorm2d& norm, const ClipSchedule& clip, StepOrigin step) {
  return renorm_from<BatchRenorm2d>(norm, clip, step);
}

BatchRenorm3d from_batch_norm(const torch::nn::BatchNorm3d& norm, const ClipSchedule& clip, StepOrigin step) {
  return renorm_from<BatchRenorm3d>(norm, clip, step);
}

torch::nn::BatchNorm1d to_batch_norm(const BatchRenorm1d& norm, FusedRelu relu) {
  return norm_from<torch::nn::BatchNorm1d>(norm, relu);
}

torch::nn::BatchNorm2d to_batch_norm(const BatchRenorm2d& norm, FusedRelu relu) {
  return norm_from<torch::nn::BatchNorm2d>(norm, relu);
}

torch::nn::BatchNorm3d to_batch_norm(const BatchRenorm3d& norm, FusedRelu relu) {
  return norm_from<torch::nn::BatchNorm3d>(norm, relu);
}

torch::nn::Conv1d fold(const torch::nn::Conv1d& layer, const BatchRenorm1d& norm, FusedRelu relu) {
  return folded(layer, *norm, relu);
}

torch::nn::Conv2d fold(const torch::nn::Conv2d& layer, const BatchRenorm2d& norm, FusedRelu relu) {
  return folded(layer, *norm, relu);
}

torch::nn::Conv3d fold(const torch::nn::Conv3d& layer, const BatchRenorm3d& norm, FusedRelu relu) {
  return folded(layer, *norm, relu);
}

torch::nn::Linear fold(const torch::nn::Linear& layer, const BatchRenorm1d& norm, FusedRelu relu) {
  return folded(layer, *norm, relu);
}

std::vector<std::string> convert(torch::nn::Module& model, const ClipSchedule& clip,
                                 const Selection& selection, StepOrigin step) {
  return replace_all<torch::nn::BatchNorm1d, torch::nn::BatchNorm2d, torch::nn::BatchNorm3d>(
      "renorm::convert", model, selection,
      [&clip, step](const auto& norm) { return from_batch_norm(norm, clip, step); });
}

std::vector<std::string> revert(torch::nn::Module& model, const Selection& selection, FusedRelu relu) {
  return replace_all<BatchRenorm1d, BatchRenorm2d, BatchRenorm3d>(
      "renorm::revert", model, selection, [relu](const auto& norm) { return to_batch_norm(norm, relu); });
}

}  // namespace renorm
