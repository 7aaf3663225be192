// The checks of BatchRenormLayer: its options, its state and the arguments of its functions.
#include <ATen/Dispatch.h>

#include <string>

#include "kernels/averages.h"
#include "ops/batch_renorm.h"
#include "renorm/nn/batch_renorm.h"

namespace renorm {
namespace {

// Whether a module of dtype `held` accepts input of dtype `given`.
bool accepts(at::ScalarType held, at::ScalarType given) {
  if (held == at::kFloat) return given == at::kFloat || given == at::kBFloat16 || given == at::kHalf;
  return held == given;
}

}  // namespace

// ClipSchedule checks the limits.
void BatchRenormLayer::check_options() const {
  TORCH_CHECK(options.num_features() > 0, who(), ": num_features must be > 0, got ", options.num_features());
  TORCH_CHECK(options.eps() > 0.0, who(), ": eps must be > 0, got ", options.eps());
  const Optional<double>& momentum = options.momentum();
  TORCH_CHECK(!momentum.has_value() || (*momentum >= 0.0 && *momentum <= 1.0), who(),
              ": momentum must be in [0, 1], got ", momentum.value_or(0.0));
  TORCH_CHECK(options.group_size() >= 0, who(), ": group_size must be >= 0, got ", options.group_size());
  const Processes& processes = options.processes();
  if (!processes.several()) return;
  TORCH_CHECK(options.group_size() == 0, who(),
              ": group_size must be 0 with statistics over several processes, got ", options.group_size());
  TORCH_CHECK(processes.rank >= 0 && processes.rank < processes.count, who(),
              ": processes.rank must be in [0, ", processes.count, "), got ", processes.rank);
  TORCH_CHECK(processes.all_reduce != nullptr, who(), ": processes.all_reduce must be a function, got none");
}

void BatchRenormLayer::check_input(const torch::Tensor& input) const {
  TORCH_CHECK(input.defined(), who(), ": input must be a tensor, got an undefined one");
  TORCH_CHECK(input.dim() >= kind_.min_rank && input.dim() <= kind_.max_rank, who(), ": input must be ",
              kind_.shapes, ", got ", input.dim(), " dimension(s)");
  TORCH_CHECK(at::isFloatingType(input.scalar_type()), who(), ": input must have a floating dtype, got ",
              input.scalar_type());
  TORCH_CHECK(input.size(1) == channels_, who(), ": input must have ", channels_,
              " channels in dimension 1, got ", input.size(1));
  TORCH_CHECK(input.scalar_type() == at::kDouble || static_cast<float>(options.eps()) > 0.0F, who(),
              ": eps must be > 0 as a Float, got ", options.eps());
  const torch::Tensor& held = running_mean.defined() ? running_mean : bias;
  if (!held.defined()) return;
  TORCH_CHECK(input.device() == held.device(), who(), ": input must be on ", held.device(),
              " like the module, got ", input.device());
  TORCH_CHECK(
      accepts(held.scalar_type(), input.scalar_type()), who(), ": input must be ",
      held.scalar_type() == at::kFloat ? "Float, BFloat16 or Half" : c10::toString(held.scalar_type()),
      " for a module of dtype ", held.scalar_type(), ", got ", input.scalar_type());
}

// Averages that training cannot produce. Other devices are not read.
void BatchRenormLayer::check_averages() const {
  if (!running_std.defined() || !running_std.is_cpu() || ops::composite_is_forced()) return;
  const torch::Tensor mean = running_mean.contiguous();
  const torch::Tensor std = running_std.contiguous();
  AT_DISPATCH_FLOATING_TYPES(std.scalar_type(), "renorm::check_averages", [&] {
    const scalar_t* stds = std.data_ptr<scalar_t>();
    const int64_t bad = kernels::find_not_positive(stds, std.numel());
    TORCH_CHECK(bad < 0, who(), ": running_std must be finite and > 0, got ", stds[bad], " in channel ", bad);
    const scalar_t* means = mean.data_ptr<scalar_t>();
    const int64_t wild = kernels::find_non_finite(means, mean.numel());
    TORCH_CHECK(wild < 0, who(), ": running_mean must be finite, got ", means[wild], " in channel ", wild);
  });
}

void BatchRenormLayer::check_residual(const torch::Tensor& input, const torch::Tensor& residual) const {
  TORCH_CHECK(residual.sizes() == input.sizes(), who(), ": residual must have the sizes of input, ",
              input.sizes(), ", got ", residual.sizes());
  TORCH_CHECK(residual.scalar_type() == input.scalar_type() && residual.device() == input.device(), who(),
              ": residual must have the dtype and device of input, ", input.scalar_type(), " on ",
              input.device(), ", got ", residual.scalar_type(), " on ", residual.device());
}

void BatchRenormLayer::check_groups(const torch::Tensor& input, int64_t group_size) const {
  const int64_t batch = input.size(0);
  if (input.numel() == 0) return;
  TORCH_CHECK(group_size == 0 || batch % group_size == 0, who(),
              ": group_size must divide the batch, got group_size ", group_size, " and a batch of ", batch);
  const int64_t examples = group_size == 0 ? batch : group_size;
  const int64_t positions = input.numel() / (batch * input.size(1));
  const char* remedy = is_training() && running_mean.defined() ? "use a larger batch or group_size, or eval()"
                                                               : "use a larger batch or group_size";
  TORCH_CHECK(
      examples * positions > 1, who(),
      ": input must have more than one value per channel and group when it is normalized with its own "
      "statistics, got shape ",
      input.sizes(), " and group_size ", group_size, "; ", remedy);
}

void BatchRenormLayer::check_class(const std::type_info& expected) const {
  const BatchRenormLayer& self = *this;
  TORCH_CHECK(typeid(self) == expected, who(), ": the subclass ", c10::demangle(typeid(self).name()),
              " must override clone() with clone_as<Class>() to be cloned");
  const auto children = named_children();
  TORCH_CHECK(children.is_empty(), who(), ": clone_as() cannot copy the child module '",
              children.front().key(),
              "'; build the copy in clone() with copy_state() and a copy of the child");
}

}  // namespace renorm
